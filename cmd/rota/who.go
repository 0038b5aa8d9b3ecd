package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/view"
)

// whoWarnings limits how many of the member's warnings `rota who` prints as text.
const whoWarnings = 3

// errNoMember is returned by `rota who` if no member works on the object, or if that cannot be determined.
var errNoMember = errors.New("no member is known to work on it")

type whoOptions struct {
	target rotaFlags
	out    output
	rota   string
}

func newWho() *cobra.Command {
	o := &whoOptions{}
	cmd := &cobra.Command{
		Use:   "who KIND/NAME | KIND NAME",
		Short: "Show which member works on an object, or why none does",
		Long: `Shows which member works on an object, since when and why, how the member receives it, whether it holds it, and
what is wrong; or why no member works on it. KIND is as for kubectl get.

The exit status is 0 if a member works on the object, 1 if none does or that cannot be determined, 4 if there is no such
object, and 5 if a permission is missing.`,
		Example: `  rota who website/hello-7 -n team-a
  rota who website hello-7 -n team-a
  rota who deploy/hello-7 --rota operators/website -o json`,
		Args: func(_ *cobra.Command, args []string) error { _, _, err := kindAndName(args); return err },
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	cmd.Flags().Lookup("namespace").Usage = "namespace of the object (default from the kubeconfig's context)"
	o.out.bind(cmd, "table", "json", "yaml")
	cmd.Flags().StringVar(&o.rota, "rota", "",
		"the rota, as NAME or NAMESPACE/NAME (default the rota that shards the kind)")
	cmd.ValidArgsFunction = o.target.completeObject
	_ = cmd.RegisterFlagCompletionFunc("rota", o.target.completeAnyRota)
	return cmd
}

// kindAndName parses the arguments KIND/NAME or KIND NAME.
func kindAndName(args []string) (kind, name string, err error) {
	switch len(args) {
	case 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case 2:
		kind, name = args[0], args[1]
	}
	if kind == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("give one object as KIND/NAME or KIND NAME; got %q", strings.Join(args, " "))
	}
	return kind, name, nil
}

func (o *whoOptions) run(cmd *cobra.Command, args []string) error {
	kind, name, _ := kindAndName(args)
	cfg, namespace, err := o.target.load()
	if err != nil {
		return err
	}
	var r *view.Rota
	var w *view.Who
	err = within(cmd.Context(), func(ctx context.Context) error {
		finder, err := view.NewFinder(cfg)
		if err != nil {
			return err
		}
		r, err = o.theRota(ctx, cfg, finder, namespace, kind)
		if err != nil {
			return err
		}
		w, err = finder.Who(ctx, r, kind, namespace, name)
		return err
	})
	if err != nil {
		return whoError(err)
	}
	out := cmd.OutOrStdout()
	if done, err := o.out.data(out, w); err != nil {
		return err
	} else if !done {
		if err := printWho(out, newPaint(cmd, out), w); err != nil {
			return err
		}
	}
	switch {
	case w.Exists != nil && !*w.Exists:
		return missingf("%s %s%s does not exist", w.Kind, suffixed(w.Namespace, "/"), w.Name)
	case w.Works == view.WorksUnknown:
		return errors.Join(errNoMember, forbidden(r))
	case w.Works != view.WorksYes:
		return errNoMember
	}
	return nil
}

// forbidden returns the error if a permission to read Leases or reports is missing, because the answer depends on them.
func forbidden(r *view.Rota) error {
	for _, u := range r.Unknown {
		if (u.What == "Leases" || u.What == "reports") && codeOf(u.Err) == exitForbidden {
			return u.Err
		}
	}
	return nil
}

// whoError adds an exit code to an error of a Finder.
func whoError(err error) error {
	switch {
	case errors.Is(err, view.ErrNoKind):
		return withCode(exitMissing, err)
	case errors.Is(err, view.ErrBadName):
		return withCode(exitUsage, err)
	}
	return viewError(err)
}

// theRota returns the rota that the flag names, or the only one that shards the kind, or the only one.
func (o *whoOptions) theRota(ctx context.Context, cfg *rest.Config, finder *view.Finder, namespace, kind string,
) (*view.Rota, error) {
	var found []types.NamespacedName
	if in, name, both := strings.Cut(o.rota, "/"); both {
		if err := validRota(name); err != nil {
			return nil, err
		}
		found = []types.NamespacedName{{Namespace: in, Name: name}}
	} else {
		all, err := listRotas(ctx, cfg, "")
		if apierrors.IsForbidden(err) { // the user may only have a role in one namespace
			all, err = listRotas(ctx, cfg, namespace)
		}
		if err != nil {
			return nil, fmt.Errorf("find the rota that shards %s: %w; or give --rota NAMESPACE/NAME", kind, err)
		}
		found = slices.DeleteFunc(all, func(r types.NamespacedName) bool { return o.rota != "" && r.Name != o.rota })
	}
	switch {
	case len(found) == 0 && o.rota != "":
		return nil, missingf("there is no rota %s: give --rota NAMESPACE/NAME", o.rota)
	case len(found) == 0:
		return nil, missingf("there is no rota in this cluster, or none that you may see: give --rota NAMESPACE/NAME")
	case len(found) == 1:
		return view.Read(ctx, cfg, found[0].Namespace, found[0].Name)
	}
	var sharding []*view.Rota
	var failed error
	for _, name := range found {
		r, err := view.Read(ctx, cfg, name.Namespace, name.Name)
		if err != nil {
			failed = err
			continue
		}
		if len(r.Reports) == 0 {
			if reason, unread := r.Unread("reports"); unread {
				failed = fmt.Errorf("cannot determine the kinds of rota %s: %s", name, reason)
			} else if len(r.Stale) > 0 {
				failed = fmt.Errorf("cannot determine the kinds of rota %s: its members have not reported recently", name)
			}
		}
		mapping, err := finder.Kind(kind, r.Kinds()...)
		if err != nil {
			return nil, err
		}
		if slices.Contains(r.Kinds(), mapping.GroupVersionKind.GroupKind()) {
			sharding = append(sharding, r)
		}
	}
	works := func(r *view.Rota) bool { return r.Shadow == nil }
	if slices.ContainsFunc(sharding, works) { // ignore shadows
		sharding = slices.DeleteFunc(sharding, func(r *view.Rota) bool { return !works(r) })
	}
	if len(sharding) == 1 && (works(sharding[0]) || failed == nil) {
		return sharding[0], nil
	}
	var names []string
	for _, name := range found {
		names = append(names, name.String())
	}
	switch list := strings.Join(names, ", "); {
	case failed != nil && !slices.ContainsFunc(sharding, works):
		return nil, fmt.Errorf("%w; give --rota with one of %s", failed, list)
	case len(sharding) == 0:
		return nil, fmt.Errorf("%w: none of the %d rotas shards %s; the rotas are %s", errNoMember, len(found), kind, list)
	default:
		names = nil
		for _, r := range sharding {
			names = append(names, r.Namespace+"/"+r.Name)
		}
		return nil, usagef("%d rotas shard %s: give --rota with one of %s", len(names), kind, strings.Join(names, ", "))
	}
}

// printWho prints an answer as text.
func printWho(to io.Writer, p paint, w *view.Who) error {
	b := &strings.Builder{}
	mark := p.good("√ ")
	switch w.Works {
	case view.WorksNo:
		mark = p.bad("× ")
	case view.WorksUnknown:
		mark = p.warn("‼ ")
	case view.WorksYes:
		if w.Late != nil || w.Unwell() {
			mark = p.warn("‼ ")
		}
	}
	fmt.Fprintf(b, "%s%s\n\n", mark, w.Answer)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	line := func(name, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(t, "  %s\t%s\n", name, text)
		}
	}
	for _, reason := range w.Reasons[min(1, len(w.Reasons)):] {
		line("also", reason)
	}
	line("rota", w.Rota)
	if w.Slot != nil {
		line("slot", fmt.Sprintf("%d of %d, by %s%s", *w.Slot, w.Slots, w.By, prefixed(", ", w.Owner)))
	}
	if w.SlotLoad != nil && *w.SlotLoad > 0 {
		text := fmt.Sprintf("the slot's objects keep %s busy", workers(*w.SlotLoad))
		if w.Load > 0 {
			text += fmt.Sprintf(", this one %.2f", w.Load)
		}
		line("load", text)
	}
	if w.Member != "" {
		line("member", fmt.Sprintf("%s (Pod %s), %s", w.Member, w.Pod, stateOf(p, w.State)))
	}
	if s := w.Since; s != nil {
		when := ""
		if s.At != nil {
			when = fmt.Sprintf(", %s", s.At.Local().Format("2006-01-02 15:04:05"))
		}
		line("since", fmt.Sprintf("epoch %d%s: %s", s.Epoch, when, s.Text))
	}
	if m := w.Move; m != nil {
		line("move", fmt.Sprintf("%s -> %s (%s%s)", cmp.Or(m.From, "-"), m.To, phaseText(m.Phase),
			prefixed(", for ", orEmpty(m.Seconds, seconds))))
	}
	line("delivery", deliveryText(w))
	if w.Slot != nil && w.Evidence != "" {
		held := "not known"
		if w.Held != nil {
			held = map[bool]string{true: "yes", false: "no"}[*w.Held]
		}
		line("held", held+": "+w.Evidence)
	}
	for _, note := range w.Notes {
		line("note", note)
	}
	for _, problem := range w.Problems {
		line("problem", problem.What+": "+problem.Message)
	}
	for _, e := range slices.Backward(w.Warnings[max(0, len(w.Warnings)-whoWarnings):]) {
		line("warning", e.Reason+": "+oneLine(errors.New(e.Message)))
	}
	_ = t.Flush()
	return p.print(to, b.String())
}

func suffixed(text, suffix string) string {
	if text == "" {
		return ""
	}
	return text + suffix
}

func phaseText(phase string) string {
	return map[string]string{
		"warm": "lists its objects", "drain": "ready; the owner is draining or waiting for its turn",
		"activate": "activating",
	}[phase]
}

func deliveryText(w *view.Who) string {
	if w.Delivery == "" {
		return ""
	}
	text := w.Delivery
	switch {
	case w.Label != "" && w.LabelHas == w.LabelValue:
		text += fmt.Sprintf(", by the label %s=%s", w.Label, w.LabelValue)
	case w.Label != "":
		text += fmt.Sprintf(", by the label %s, which should be %s and is %s", w.Label, w.LabelValue,
			cmp.Or(w.LabelHas, "missing"))
	case w.Delivery == "Filter":
		text += ": every member receives all objects of the kind, and keeps only its share"
	default:
		text += ": the API server selects by the UID's hash"
	}
	if w.Dispatched {
		text += "; the member hands out keys to workers"
	}
	return text
}

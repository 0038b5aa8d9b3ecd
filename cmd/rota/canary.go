package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Reasons of events about canaries.
const (
	eventCanaryStarted = "CanaryStarted"
	eventCanaryAsked   = "CanaryPromoted"
	eventCanaryAborted = "CanaryBack"
)

func newCanary() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "canary",
		Short: "Give a new build a share of the objects first",
		Long: `Gives a new build a share of the slots, compares its reconciles with the other builds' reconciles, and takes
the slots back if it does worse (docs/operations.md).`,
	}
	cmd.AddCommand(newCanaryStart(), newCanaryStatus(), newCanaryPromote(), newCanaryAbort())
	return cmd
}

// canaryFlags are the flags of canary start.
type canaryFlags struct {
	build, share      string
	namespaces, steps []string
	every             time.Duration
	expect            bool
}

func newCanaryStart() *cobra.Command {
	a, f := &actor{}, &canaryFlags{}
	cmd := &cobra.Command{
		Use:   "start [NAME] --build BUILD",
		Short: "Give a build's members a share of the slots, or some namespaces",
		Long: `Gives a build's members only a share of the slots, or only the slots of some namespaces. Start the canary
before its Pods, with --expect. Otherwise they first get as many slots as any member.

With --steps and --every the share grows. A step takes at least --every, and needs 300 reconciles on each side without a
significant difference. After the last step, or instead of a step of 100, the build is promoted. Without --every the
share does not grow, but a canary that does worse is still rolled back.`,
		Example: `  rota canary start website -n operators --build v2 --share 5% --expect
  rota canary start -n operators --build v2 --steps 5,20,50,100 --every 10m
  rota canary start -n operators --build v2 --namespaces team-a,team-b --steps 20,100 --every 1h`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := f.canary()
			if err != nil {
				return err
			}
			if err := a.open(cmd, args); err != nil {
				return err
			}
			defer a.close()
			if !want.Expect {
				if err := a.checkNamespaces(want.Namespaces); err != nil {
					return err
				}
			}
			return a.startCanary(want)
		},
	}
	a.bind(cmd)
	a.bindReason(cmd)
	cmd.Flags().StringVar(&f.build, "build", "", "the new build, as rota status shows it")
	cmd.Flags().StringVar(&f.share, "share", "", "share of the slots, from 1% to 99%, rounded up to whole slots")
	cmd.Flags().StringSliceVar(&f.namespaces, "namespaces", nil,
		"namespaces for the canary, if the rota shards by namespace")
	cmd.Flags().StringSliceVar(&f.steps, "steps", nil, "rising shares in percent, such as 5,20,50,100; 100 promotes the "+
		"build")
	cmd.Flags().DurationVar(&f.every, "every", 0, "minimum duration of each step; 0 until you promote or abort")
	cmd.Flags().BoolVar(&f.expect, "expect", false, "the build has no members yet")
	return cmd
}

// canary checks the flags and returns the canary that they describe.
func (f *canaryFlags) canary() (c orders.Canary, err error) {
	c = orders.Canary{Build: f.build, Every: f.every, Expect: f.expect}
	switch {
	case f.build == "":
		return c, usagef("canary start: --build is required; `rota status` shows the members' builds")
	case f.build == table.None:
		return c, usagef("canary start: --build: %q means that the build is unknown: give the members a build with "+
			"--rota-build", f.build)
	case strings.ContainsAny(f.build, " \t\r\n"):
		return c, usagef("canary start: --build %q: must be one word", f.build)
	case f.share == "" && len(f.steps) == 0 && len(f.namespaces) == 0:
		return c, usagef("canary start: give its share: --share 5%%, --steps 5,20,50,100, or --namespaces")
	case f.every < 0 || f.every > 0 && f.every < time.Second || f.every > table.MaxCanaryEvery*time.Second:
		return c, usagef("canary start: --every %v: must be from 1s to 720h, or 0", f.every)
	case len(f.steps) > 0 && f.every == 0:
		return c, usagef("canary start: --steps needs --every, the duration of each; or give one --share, and promote by " +
			"hand")
	case len(f.steps)+1 > table.MaxCanarySteps:
		return c, usagef("canary start: --steps: %d steps, of at most %d", len(f.steps), table.MaxCanarySteps-1)
	case len(f.namespaces) > table.MaxCanaryNamespaces:
		return c, usagef("canary start: --namespaces: %d namespaces, of at most %d", len(f.namespaces),
			table.MaxCanaryNamespaces)
	}
	for _, name := range f.namespaces {
		if reasons := validation.IsDNS1123Label(name); len(reasons) > 0 {
			return c, usagef("canary start: --namespaces: %q is not a valid namespace: %s", name, strings.Join(reasons, "; "))
		}
	}
	c.Namespaces = f.namespaces
	if f.share == "" && len(f.namespaces) > 0 {
		c.Steps = append(c.Steps, 0) // at first only these
	}
	if f.share != "" {
		percent, err := percentOf(f.share)
		if err != nil {
			return c, usagef("canary start: --share %s: %w", f.share, err)
		}
		c.Steps = append(c.Steps, percent)
	}
	for _, text := range f.steps {
		percent, err := percentOf(text)
		if err != nil {
			return c, usagef("canary start: --steps: %s: %w", text, err)
		}
		if n := len(c.Steps); n > 0 && c.Steps[n-1] >= percent {
			if n == 1 && f.share != "" && c.Steps[0] == percent {
				continue // --share 5% --steps 5,20
			}
			return c, usagef("canary start: --steps: %d%% comes after %d%%: each step must be larger than the one before",
				percent, c.Steps[n-1])
		}
		c.Steps = append(c.Steps, percent)
	}
	if c.Steps[0] == 100 {
		return c, usagef("canary start: a share of 100%% leaves no members to compare with: start with less; 100 as the " +
			"last of --steps promotes the build")
	}
	return c, nil
}

// percentOf parses a share, with or without the percent sign.
func percentOf(text string) (int, error) {
	percent, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	switch {
	case err != nil:
		return 0, errors.New("must be a whole number of percent, such as 5%")
	case percent < 1 || percent > 100:
		return 0, errors.New("must be from 1% to 100%")
	}
	return percent, nil
}

// checkNamespaces returns an error if a namespace does not exist. It only warns if it may not look.
func (a *actor) checkNamespaces(namespaces []string) error {
	client, err := kubernetes.NewForConfig(a.cfg)
	if err != nil {
		return err
	}
	for _, name := range namespaces {
		_, err := client.CoreV1().Namespaces().Get(a.cmd.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return missingf("rota %s: there is no namespace %s; use --expect if it will be created later", a.rota, name)
		case err != nil:
			a.progress("rota: cannot check whether namespace %s exists: %s", name, oneLine(err))
		}
	}
	return nil
}

func (a *actor) startCanary(want orders.Canary) error {
	t, _, err := a.give(func(t *table.Table, by orders.By) error { return orders.StartCanary(t, want, by) },
		eventCanaryStarted, fixed("the canary of build "+want.Build+" is started"))
	if err != nil {
		return err
	}
	set := t.CanarySlots()
	a.result("rota %s: the canary of build %s is started: its members own %s, and no others", a.rota, want.Build,
		counted(set.Len(), "slot"))
	if !slices.ContainsFunc(t.Members, t.Apart) {
		a.progress("rota: no member of build %s is there yet; the other members keep all slots until one joins", want.Build)
	}
	if canary, others := orders.Heaviest(t); slices.ContainsFunc(t.Members, t.Apart) && canary > 2*others {
		a.progress("rota: in the last step each member of build %s will have %d slots, while other members had at most %d: "+
			"start more members of that build before then", want.Build, canary, others)
	}
	for _, warning := range canaryHeld(t) {
		a.progress("rota: %s", warning)
	}
	return nil
}

// canaryHeld returns why a canary does not get its slots.
func canaryHeld(t *table.Table) (why []string) {
	if t.Paused() {
		why = append(why, "moves are paused, so it gets its slots only after `rota resume`")
	}
	var drained []string
	others := false
	for _, m := range t.Members {
		switch {
		case !t.Apart(m):
		case t.Drained(m.ID):
			drained = append(drained, m.ID)
		default:
			others = true
		}
	}
	if len(drained) > 0 && !others {
		why = append(why, "all its members are drained, so the other members have its slots: "+strings.Join(drained, ", "))
	}
	return why
}

func newCanaryStatus() *cobra.Command {
	var out output
	var target rotaFlags
	cmd := &cobra.Command{
		Use:     "status [NAME]",
		Short:   "Show a canary's progress and how it compares",
		Example: `  rota canary status website -n operators`,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, rota, err := target.loadRota(cmd.Context(), args)
			if err != nil {
				return err
			}
			r, err := view.Read(cmd.Context(), cfg, rota.Namespace, rota.Name)
			if err != nil {
				return missingRota(cmd.Context(), cfg, rota, err)
			}
			if r.Canary == nil {
				return missingf("rota %s: %w", rota, orders.ErrNoCanary)
			}
			if done, err := out.data(cmd.OutOrStdout(), r.Canary); done {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(canaryLines(newPaint(cmd, cmd.OutOrStdout()), r), "\n"))
			return err
		},
	}
	target.bind(cmd)
	out.bind(cmd, "table", "json", "yaml")
	return cmd
}

// canaryLines describe a canary.
func canaryLines(p paint, r *view.Rota) []string {
	c := r.Canary
	head := fmt.Sprintf("the canary of build %s", c.Build)
	asked := fmt.Sprintf("requested %s ago%s%s", age(c.Since, r.At), prefixed(" by ", c.By), prefixed(": ", c.Reason))
	var lines []string
	switch c.State {
	case view.WentBack:
		return []string{p.bad(head+" was rolled back") + ": " + c.Verdict, "  " + asked,
			"  " + view.CanaryCure(c)}
	case view.Promoted:
		return []string{head + " is promoted: none of its slots go to another build any more; " + asked,
			fmt.Sprintf("  %d members of it have %d of %d slots; the canary ends when no member of another build is left",
				c.Members, c.Owned, r.Slots)}
	case view.Awaited:
		lines = append(lines, p.warn(head+" is waiting for a member")+"; "+asked)
	default:
		lines = append(lines, fmt.Sprintf("%s runs; %s", head, asked))
	}
	lines = append(lines, fmt.Sprintf("  step %d of %d (%s): %d members of it own %d of its %d slots, of %d", c.Step+1,
		len(c.Steps), strings.Join(c.StepTexts(), ", "), c.Members, c.Owned, c.Slots, r.Slots))
	if len(c.Namespaces) > 0 {
		lines = append(lines, "  namespaces: "+strings.Join(c.Namespaces, ", "))
	}
	if c.Began == nil && c.State == view.Running {
		lines = append(lines, "  the step begins when the canary's members have its slots")
	}
	if c.Began != nil {
		every := "until you promote or abort it"
		if c.Every > 0 {
			every = fmt.Sprintf("at least %v", time.Duration(c.Every*float64(time.Second)))
		}
		lines = append(lines, fmt.Sprintf("  the step began %s ago and lasts %s", age(*c.Began, r.At), every),
			"  "+c.Judged+": "+strings.ReplaceAll(c.Text, "; others:", ";\n    others:"))
	}
	return lines
}

func newCanaryPromote() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:   "promote [NAME]",
		Short: "Let the canary's build take over",
		Long: `Ends the trial: the canary's members get slots like any other member, and never give slots back to other
builds. Then update the other members to the build. The canary ends when no other build is left.`,
		Example: `  rota canary promote website -n operators`,
		Args:    oneName,
		RunE: a.on(func() error {
			build := ""
			_, changed, err := a.give(func(t *table.Table, _ orders.By) error {
				build = t.Canary.Build
				return orders.PromoteCanary(t)
			}, eventCanaryAsked, func() string { return "build " + build + " is promoted" })
			switch {
			case err != nil:
				return err
			case changed:
				a.result("rota %s: build %s is promoted: update the other members to it", a.rota, build)
			default:
				a.result("rota %s: build %s is promoted already", a.rota, build)
			}
			return nil
		}),
	}
	a.bind(cmd)
	return cmd
}

func newCanaryAbort() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:   "abort [NAME]",
		Short: "Give the canary's slots back to the other builds",
		Long: `Gives the canary's slots back to the other builds. Its members then get no slots while there are others. Remove
them, and abort again to end the canary.`,
		Example: `  rota canary abort website -n operators --reason "wrong image"
  rota canary abort -n operators --wait`,
		Args: oneName,
		RunE: a.on(a.abortCanary),
	}
	a.bind(cmd)
	a.bindReason(cmd)
	a.bindWait(cmd, "its build's members have no slots")
	return cmd
}

func (a *actor) abortCanary() error {
	build, over := "", false
	t, changed, err := a.give(func(t *table.Table, by orders.By) error {
		if build != "" && !t.Canary.On() {
			return orders.ErrNoChange // an earlier write took effect after its error
		}
		build = t.Canary.Build
		err := orders.AbortCanary(t, by)
		over = !t.Canary.On()
		return err
	}, eventCanaryAborted, func() string {
		if over {
			return "the canary of build " + build + " ends"
		}
		return "the canary of build " + build + " goes back to the other builds"
	})
	switch {
	case err != nil:
		return err
	case !changed && t.Canary.On():
		a.result("rota %s: the canary of build %s was already rolled back: %s", a.rota, build, t.Canary.Verdict)
	case !t.Canary.On():
		a.result("rota %s: the canary of build %s ends; it has no members", a.rota, build)
		return nil
	default:
		a.result("rota %s: the canary of build %s is being rolled back", a.rota, build)
	}
	if t.Paused() {
		a.progress("rota: moves are paused, so it keeps its slots until `rota resume`")
	}
	if !a.wait {
		return nil
	}
	return a.await(func(t *table.Table) (string, bool, error) {
		if !t.Canary.On() || t.Canary.State != table.CanaryBack || t.Canary.Build != build {
			return "", false, withCode(exitConflict, fmt.Errorf("rota %s: someone changed the canary meanwhile", a.rota))
		}
		left := 0
		for id, n := range t.Counts() {
			if m, ok := t.Member(id); ok && t.Apart(m) {
				left += n
			}
		}
		return fmt.Sprintf("members of build %s have %s left", build, counted(left, "slot")), left == 0, nil
	})
}

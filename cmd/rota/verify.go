package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
)

const (
	// verifyPage is how many objects are read at a time.
	verifyPage = 1000
	// compareTimeout bounds one comparison.
	compareTimeout = 5 * time.Minute
)

// errUncovered is returned by `rota verify` if something is wrong.
var errUncovered = errors.New("some objects are not held by exactly one member")

type verifyOptions struct {
	out        output
	namespaces []string
	selector   string
	every      time.Duration
	watch      bool
}

func newVerify() *cobra.Command {
	var o verifyOptions
	var target rotaFlags
	cmd := &cobra.Command{
		Use:   "verify [NAME]",
		Short: "Check that exactly one live member holds every object",
		Long: `Compares the members' reports with lists of the metadata of the objects that their informers select. It waits
for a new report from every member, which takes about half of a lease, and watches a slot without an active member for a
lease and FenceDelay. The exit status is 1 if something is wrong.`,
		Example: `  rota verify website -n operators --watch`,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.every < time.Second {
				return usagef("verify: --every %v: must be at least 1s", o.every)
			}
			cfg, rota, err := target.loadRota(cmd.Context(), args)
			if err != nil {
				return err
			}
			if o.watch && o.out.format != "table" {
				return usagef("verify: give --watch or -o, not both")
			}
			if names.IsShadow(rota.Name) {
				return usagef("verify: rota %s is a shadow: its members hold nothing to compare; rota status shows "+
					"what they would own", rota.Name)
			}
			v, err := newVerifier(cfg, rota.Namespace, rota.Name, o)
			if err != nil {
				return err
			}
			defer v.store.Close()
			return v.run(cmd.Context(), cmd.OutOrStdout(), newPaint(cmd, cmd.OutOrStdout()))
		},
	}
	target.bind(cmd)
	o.out.bind(cmd, "table", "json", "yaml")
	cmd.Flags().StringSliceVar(&o.namespaces, "in-namespaces", nil,
		"namespaces that informers watch, for members that do not report them (default all)")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "",
		"label selector that informers use, for members that do not report it")
	cmd.Flags().DurationVar(&o.every, "every", 10*time.Second, "interval of comparisons")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "repeat until interrupted, and print what changes")
	return cmd
}

type verifier struct {
	o       verifyOptions
	cfg     *rest.Config
	rota    types.NamespacedName
	disco   discovery.DiscoveryInterface
	store   *store.Kubernetes
	reports *coverage.Reports
	mapper  meta.RESTMapper
	client  metadata.Interface
}

func newVerifier(cfg *rest.Config, namespace, name string, o verifyOptions) (*verifier, error) {
	if len(o.namespaces) == 0 {
		o.namespaces = []string{metav1.NamespaceAll}
	}
	kube, err := store.NewKubernetes(cfg, store.Options{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	reports, err := coverage.NewReports(cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	client, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	rota := types.NamespacedName{Namespace: namespace, Name: name}
	return &verifier{o, cfg, rota, disco, kube, reports, mapper, client}, nil
}

// verified is the result of one comparison, and the output of `rota verify -o json`. Fields are added, but never
// renamed or removed.
type verified struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Good is true if exactly one member holds every object. Findings lists the exceptions, except those in Rollout, which
	// a rollout may have caused.
	Good     bool     `json:"good"`
	Findings []string `json:"findings"`
	Rollout  []string `json:"rollout,omitempty"`
	// Selected lists the kinds of which only a part was compared, because the members' informers select only a part.
	Selected []string `json:"selected,omitempty"`
	// Objects and Kinds count what was compared.
	Objects int        `json:"objects"`
	Kinds   int        `json:"kinds"`
	Slots   slot.Count `json:"slots"`
	Members int        `json:"members"`
	Epoch   uint64     `json:"epoch"`
}

// String summarizes the comparison.
func (v *verified) String() string {
	text := fmt.Sprintf("%d objects of %d kinds in %d slots; %d members, epoch %d", v.Objects, v.Kinds, v.Slots, v.Members,
		v.Epoch)
	switch {
	case v.Good && v.Kinds == 0:
		return text + ": the members report no sharded kind, so there is nothing to compare"
	case v.Good:
		return text + ": all is well: exactly one member holds each object"
	}
	return text
}

// judge sets the result from the findings.
func (v *verified) judge(findings []coverage.Finding, rollout []coverage.Difference) {
	v.Good, v.Findings, v.Rollout = len(findings) == 0, []string{}, nil
	for _, f := range findings {
		v.Findings = append(v.Findings, f.String())
	}
	for _, d := range rollout {
		v.Rollout = append(v.Rollout, d.String())
	}
}

func (v *verifier) run(ctx context.Context, w io.Writer, p paint) error {
	var tracker *coverage.Tracker
	begun, last, settled := time.Now(), "never", false
	for {
		t, reports, census, result, err := v.read(ctx)
		if err != nil {
			return err
		}
		if tracker == nil {
			tracker = coverage.NewTracker(coverage.BoundsBy(reports))
		}
		findings := tracker.Look(time.Since(begun), t, reports, census)
		if settled = settled || tracker.Settled(); settled {
			result.judge(findings, tracker.Rollout())
			text := describe(findings, tracker.Rollout(), result.Selected)
			if !v.o.watch {
				return v.print(w, p, result, text)
			}
			if text != last {
				_, _ = fmt.Fprintf(w, "%s %s\n%s", time.Now().Format(time.TimeOnly), result, text)
				last = text
			}
		}
		select {
		case <-time.After(v.o.every):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// print prints a result. It returns an error if something is wrong.
func (v *verifier) print(w io.Writer, p paint, result *verified, text string) error {
	done, err := v.o.out.data(w, result)
	if !done {
		_, err = fmt.Fprint(w, text)
	}
	if err == nil && !result.Good {
		return errUncovered
	}
	if err == nil && !done {
		_, err = fmt.Fprintln(w, p.good("√"), result)
	}
	return err
}

// describe lists the findings, the differences that a rollout may have caused, and what was left out.
func describe(findings []coverage.Finding, rollout []coverage.Difference, selected []string) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintln(&b, f)
	}
	for _, d := range rollout {
		fmt.Fprintf(&b, "ignored, because a rollout may have caused it: %s\n", d)
	}
	for _, text := range selected {
		fmt.Fprintln(&b, text)
	}
	return b.String()
}

// read reads the inputs of one comparison.
func (v *verifier) read(ctx context.Context,
) (t *table.Table, reports []*coverage.Report, census coverage.Digests, result *verified, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	if t, err = readTable(ctx, v.store); err != nil {
		if errors.Is(err, view.ErrNoRota) {
			err = missingf("rota %s: %w: %s%s", v.rota, view.ErrNoRota, whyNone(ctx, v.cfg, v.rota.Namespace),
				elsewhere(ctx, v.cfg, v.rota))
		}
		return nil, nil, nil, nil, err
	}
	if reports, err = v.reports.Read(ctx); err != nil {
		return nil, nil, nil, nil, err
	}
	census, selected, err := v.census(ctx, t, reports)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	return t, reports, census, &verified{Namespace: v.rota.Namespace, Name: v.rota.Name, Selected: selected,
		Objects: objectsOf(census), Kinds: len(census), Slots: t.Slots, Members: len(t.Members), Epoch: t.Epoch}, nil
}

// census counts the objects of the members' kinds, and lists what it left out.
func (v *verifier) census(ctx context.Context, t *table.Table, reports []*coverage.Report,
) (census coverage.Digests, leftOut []string, err error) {
	roles := sharding.New(sharding.Options{Slots: t.Slots, Key: t.Key})
	kinds := map[schema.GroupKind]bool{}
	for _, r := range reports {
		for kind := range r.Digests {
			kinds[kind] = true
			if len(r.Owners[kind]) == 0 {
				if err := roles.Shard(kind); err != nil {
					return nil, nil, err
				}
			}
			for owner, namespaced := range r.Owners[kind] {
				roles.Own(kind, owner, namespaced)
			}
		}
	}
	if gone, err := view.NotServed(ctx, v.disco, slices.Collect(maps.Keys(kinds))); err != nil {
		return nil, nil, fmt.Errorf("find the served kinds: %w", err)
	} else if len(gone) > 0 {
		return nil, nil, notServed(gone)
	}
	census = coverage.Digests{}
	var partial selectedParts
	byName := func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), byName) {
		mapping, err := v.mapper.RESTMapping(kind)
		if err != nil {
			return nil, nil, fmt.Errorf("kind %s: %w", kind, err)
		}
		parts := partsOf(kind, ofMembers(t, reports), v.flagged(mapping))
		if census[kind], err = v.countParts(ctx, roles, mapping, parts); err != nil {
			return nil, nil, fmt.Errorf("list the metadata of %s: %w", mapping.Resource.GroupResource(), err)
		}
		partial.add(kind, parts)
	}
	return census, partial.texts(), nil
}

func objectsOf(census coverage.Digests) int {
	n := 0
	for _, digests := range census {
		for _, d := range digests {
			n += d.Objects
		}
	}
	return n
}

// notServed is the error if members shard kinds that the API server does not serve: no member can work on their
// objects, and there is nothing to compare.
func notServed(kinds []schema.GroupKind) error {
	var words []string
	for _, kind := range kinds {
		words = append(words, kind.String())
	}
	slices.Sort(words)
	return withCode(exitFindings, fmt.Errorf("the API server does not serve %s, which the members shard: its "+
		"CustomResourceDefinition was deleted with all objects, or no longer serves that version. No member works on "+
		"objects of that kind until it is back", strings.Join(words, ", ")))
}

// flagged returns the selections given by the flags.
func (v *verifier) flagged(m *meta.RESTMapping) []sharding.Selection {
	by := sharding.Selectors{Label: v.o.selector}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		return []sharding.Selection{{Selectors: by}}
	}
	var out []sharding.Selection
	for _, namespace := range v.o.namespaces {
		out = append(out, sharding.Selection{Namespace: namespace, Selectors: by})
	}
	return out
}

// countParts returns a digest of each slot, counted with the selection of the members that have the slot open. Slots
// that no member has open are counted with the first part.
func (v *verifier) countParts(ctx context.Context, roles *sharding.Roles, m *meta.RESTMapping, parts []*part,
) (map[slot.Slot]sharding.Digest, error) {
	out := map[slot.Slot]sharding.Digest{}
	for i, p := range parts {
		digests, err := v.count(ctx, roles, m, p.selections)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			out = digests
			continue
		}
		for _, n := range p.open.Slots() {
			delete(out, n)
			if d, ok := digests[n]; ok {
				out[n] = d
			}
		}
	}
	return out, nil
}

// count counts each object that at least one selection selects.
func (v *verifier) count(ctx context.Context, roles *sharding.Roles, m *meta.RESTMapping,
	selections []sharding.Selection,
) (map[slot.Slot]sharding.Digest, error) {
	digests := map[slot.Slot]sharding.Digest{}
	var seen map[types.UID]struct{}
	if overlap(selections) {
		seen = map[types.UID]struct{}{}
	}
	for _, s := range selections {
		o := metav1.ListOptions{Limit: verifyPage, LabelSelector: s.Label, FieldSelector: s.Field}
		for {
			page, err := v.client.Resource(m.Resource).Namespace(s.Namespace).List(ctx, o)
			if apierrors.IsNotFound(err) { // the version is no longer served
				return nil, notServed([]schema.GroupKind{m.GroupVersionKind.GroupKind()})
			}
			if err != nil {
				return nil, err
			}
			for i := range page.Items {
				obj := &page.Items[i]
				if _, again := seen[obj.UID]; again {
					continue
				}
				if seen != nil {
					seen[obj.UID] = struct{}{}
				}
				if n, ok := roles.SlotOf(m.GroupVersionKind.GroupKind(), obj); ok {
					digests[n] = digests[n].With(sharding.DigestHash(roles.Key(), obj))
				}
			}
			if o.Continue = page.Continue; o.Continue == "" {
				break
			}
		}
	}
	return digests, nil
}

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
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

const (
	// verifyPage is how many objects are in memory at a time.
	verifyPage = 1000
	// compareTimeout bounds one comparison.
	compareTimeout = 5 * time.Minute
)

// errUncovered is the error of `rota verify` if something is wrong.
var errUncovered = errors.New("not every object is held by exactly one member")

type verifyOptions struct {
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
		Short: "Check that every object is held by exactly one live member",
		Long: `Compares what the members of a rota report with consistent lists of the objects' metadata.

Objects come and go between a report and a list. So it looks again until every member has reported anew, which takes
about half of the members' LeaseDuration. A slot that nobody works on is watched for a lease and FenceDelay. The
exit status is 1 if something is wrong.`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.every < time.Second {
				return usagef("verify: --every %v: must be at least 1s", o.every)
			}
			cfg, rota, err := target.loadRota(cmd.Context(), args)
			if err != nil {
				return err
			}
			if names.IsShadow(rota.Name) {
				return usagef("verify: rota %s is a shadow: its members hold nothing that could be compared; rota status says "+
					"what they would have", rota.Name)
			}
			v, err := newVerifier(cfg, rota.Namespace, rota.Name, o)
			if err != nil {
				return err
			}
			defer v.store.Close()
			return v.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	target.bind(cmd)
	cmd.ValidArgsFunction = target.completeRotas
	cmd.Flags().StringSliceVar(&o.namespaces, "in-namespaces", nil,
		"namespaces to which the members' informers are limited (default all)")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "",
		"label selector to which the members' informers are limited (default none)")
	cmd.Flags().DurationVar(&o.every, "every", 10*time.Second, "time between two comparisons")
	cmd.Flags().BoolVar(&o.watch, "watch", false, "go on until interrupted, and print what changes")
	return cmd
}

type verifier struct {
	o       verifyOptions
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
	return &verifier{o, kube, reports, mapper, client}, nil
}

func (v *verifier) run(ctx context.Context, w io.Writer) error {
	var tracker *coverage.Tracker
	begun, last, settled := time.Now(), "never", false
	for {
		t, reports, census, summary, err := v.read(ctx)
		if err != nil {
			return err
		}
		if tracker == nil {
			tracker = coverage.NewTracker(coverage.BoundsBy(reports))
		}
		findings := tracker.Look(time.Since(begun), t, reports, census)
		if settled = settled || tracker.Settled(); settled {
			text := describe(findings, tracker.Rollout())
			if !v.o.watch {
				_, _ = fmt.Fprint(w, text)
				if len(findings) > 0 {
					return errUncovered
				}
				_, _ = fmt.Fprintln(w, summary)
				return nil
			}
			if text != last {
				_, _ = fmt.Fprintf(w, "%s %s\n%s", time.Now().Format(time.TimeOnly), summary, text)
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

// describe lists the findings, and differences that do not count because a rollout may have brought them.
func describe(findings []coverage.Finding, rollout []coverage.Difference) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintln(&b, f)
	}
	for _, d := range rollout {
		fmt.Fprintf(&b, "not counted, since a rollout may have brought it: %s\n", d)
	}
	return b.String()
}

// read reads what a look compares.
func (v *verifier) read(ctx context.Context,
) (t *table.Table, reports []*coverage.Report, census coverage.Digests, summary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	if t, err = readTable(ctx, v.store); err != nil {
		return nil, nil, nil, "", err
	}
	if reports, err = v.reports.Read(ctx); err != nil {
		return nil, nil, nil, "", err
	}
	census, objects, err := v.census(ctx, t, reports)
	if err != nil {
		return nil, nil, nil, "", err
	}
	return t, reports, census, fmt.Sprintf("%d objects of %d kinds in %d slots; %d members, epoch %d",
		objects, len(census), t.Slots, len(t.Members), t.Epoch), nil
}

// census counts the objects of the kinds that members report.
func (v *verifier) census(ctx context.Context, t *table.Table, reports []*coverage.Report,
) (coverage.Digests, int, error) {
	share := delivery.New(delivery.Options{Slots: t.Slots, Key: t.Key})
	kinds := map[schema.GroupKind]bool{}
	for _, r := range reports {
		for kind := range r.Digests {
			kinds[kind] = true
			if len(r.Owners[kind]) == 0 {
				if err := share.Shard(kind); err != nil {
					return nil, 0, err
				}
			}
			for owner, namespaced := range r.Owners[kind] {
				share.Own(kind, owner, namespaced)
			}
		}
	}
	census, objects := coverage.Digests{}, 0
	byName := func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), byName) {
		mapping, err := v.mapper.RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			continue // it is no longer served, so it has no objects
		}
		if err != nil {
			return nil, 0, fmt.Errorf("kind %s: %w", kind, err)
		}
		digests := map[slot.Slot]delivery.Digest{}
		for _, ns := range v.o.namespaces {
			n, err := v.count(ctx, share, mapping, ns, digests)
			if err != nil {
				return nil, 0, fmt.Errorf("list the metadata of %s: %w", mapping.Resource.GroupResource(), err)
			}
			objects += n
		}
		census[kind] = digests
	}
	return census, objects, nil
}

func (v *verifier) count(ctx context.Context, share *delivery.Share, m *meta.RESTMapping, namespace string,
	digests map[slot.Slot]delivery.Digest,
) (int, error) {
	o := metav1.ListOptions{Limit: verifyPage, LabelSelector: v.o.selector}
	if m.Scope.Name() == meta.RESTScopeNameRoot {
		namespace = metav1.NamespaceAll
	}
	objects := 0
	for {
		page, err := v.client.Resource(m.Resource).Namespace(namespace).List(ctx, o)
		if apierrors.IsNotFound(err) {
			return objects, nil
		}
		if err != nil {
			return 0, err
		}
		for i := range page.Items {
			share.Count(m.GroupVersionKind.GroupKind(), &page.Items[i], digests)
		}
		objects += len(page.Items)
		if o.Continue = page.Continue; o.Continue == "" {
			return objects, nil
		}
	}
}

package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
)

// completeNames limits how many object names completion offers.
const completeNames = 200

// completeObject completes KIND/NAME and KIND NAME. It offers the kinds that the cluster's rotas shard, then names.
func (f *rotaFlags) completeObject(cmd *cobra.Command, args []string, word string,
) ([]string, cobra.ShellCompDirective) {
	kind, _, slash := strings.Cut(word, "/")
	switch {
	case len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "/"):
		return nil, cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1:
		return f.completeNamesOf(cmd, args[0], "")
	case slash:
		return f.completeNamesOf(cmd, kind, kind+"/")
	}
	words, directive := f.complete(cmd, func(ctx context.Context, cfg *rest.Config, _ string) (out []string, err error) {
		finder, err := view.NewFinder(cfg)
		if err != nil {
			return nil, err
		}
		kinds, err := shardedKinds(ctx, cfg)
		for _, kind := range kinds {
			if word, err := finder.Word(kind); err == nil { // skip kinds that are not served
				out = append(out, word+"/")
			}
		}
		return out, err
	})
	return words, directive | cobra.ShellCompDirectiveNoSpace
}

func (f *rotaFlags) completeNamesOf(cmd *cobra.Command, kind, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, func(ctx context.Context, cfg *rest.Config, namespace string) (out []string, err error) {
		finder, err := view.NewFinder(cfg)
		if err != nil {
			return nil, err
		}
		found, err := finder.Names(ctx, kind, namespace, completeNames)
		for _, name := range found {
			out = append(out, prefix+name)
		}
		return out, err
	})
}

// shardedKinds returns the kinds that any rota of the cluster shards, sorted.
func shardedKinds(ctx context.Context, cfg *rest.Config) ([]schema.GroupKind, error) {
	found, err := listRotas(ctx, cfg, "")
	if err != nil {
		return nil, err
	}
	kinds := map[schema.GroupKind]bool{}
	for _, rota := range found {
		reports, err := coverage.NewReports(cfg, rota.Namespace, rota.Name)
		if err != nil {
			return nil, err
		}
		all, err := reports.Read(ctx)
		if err != nil && len(all) == 0 {
			continue // other rotas may be readable
		}
		for _, r := range all {
			for kind := range r.Digests {
				kinds[kind] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(kinds), func(a, b schema.GroupKind) int {
		return strings.Compare(a.String(), b.String())
	}), nil
}

// completeAnyRota completes NAMESPACE/NAME of a rota.
func (f *rotaFlags) completeAnyRota(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, func(ctx context.Context, cfg *rest.Config, _ string) (out []string, err error) {
		found, err := listRotas(ctx, cfg, "")
		for _, rota := range found {
			out = append(out, rota.String())
		}
		return out, err
	})
}

package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// What members differ in is a row of `rota verify`.
func TestDescribeDifferences(t *testing.T) {
	reports := []*coverage.Report{
		{Member: "web-0-a", Digests: coverage.Digests{schema.GroupKind{Kind: "ConfigMap"}: nil}, Setup: map[string]string{coverage.SettingWorkload: "web"}},
		{Member: "gone", Digests: coverage.Digests{schema.GroupKind{Kind: "Pod"}: nil}},
		{Member: "web-1-b", Setup: map[string]string{coverage.SettingWorkload: "web"}},
	}
	tab := table.New(256, slot.KeyName, 43)
	for _, id := range []string{"web-0-a", "web-1-b"} {
		tab.Put(table.Member{ID: id, Pod: id[:5], Weight: 1, MinFormat: 1, MaxFormat: 1})
	}
	found := coverage.DifferencesIn(tab, reports)
	const line = "members differ in kind ConfigMap: not sharded (web-1-b), sharded by its own key (web-0-a)\n"
	if got, want := describe(nil, found, nil), "ignored, because a rollout may have caused it: "+line; got != want {
		t.Errorf("verify: %q, want %q", got, want)
	}
}

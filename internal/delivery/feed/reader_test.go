package feed

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// Reads do not wait for what an informer's user leaves out. What only the API server can tell, they wait for.
func TestSelects(t *testing.T) {
	named := func(l ...labels.Set) *ledger.Unshown {
		return &ledger.Unshown{Name: types.NamespacedName{Namespace: "a", Name: "x"}, Labels: l}
	}
	for _, c := range []struct {
		label, field string
		write        *ledger.Unshown
		want         bool
	}{
		{"", "", named(labels.Set{}), true},
		{"app=a", "", named(labels.Set{"app": "a"}), true},
		{"app=a", "", named(labels.Set{"app": "b"}), false},
		{"app=a", "", named(labels.Set{"app": "b"}, labels.Set{"app": "a"}), true}, // as it was by one of its writes
		{"app=a", "", named(), true},                                               // nobody knows
		{"app=a", "", named(labels.Set{}), false},
		{"", "metadata.name=x", named(), true},
		{"", "metadata.name=y", named(), false},
		{"", "metadata.name!=x", named(), false},
		{"", "metadata.name!=y", named(), true},
		{"", "metadata.namespace=b", named(), false},
		{"", "spec.nodeName=n", named(), true},
		{"", "spec.nodeName=n,metadata.name=y", named(), false},
		{"app in (", "", named(labels.Set{}), true},
	} {
		by := parseSelection(&sharding.Selection{Selectors: sharding.Selectors{Label: c.label, Field: c.field}})
		if got := by.selects(c.write); got != c.want {
			t.Errorf("label %q, field %q, labels %v: %v, want %v", c.label, c.field, c.write.Labels, got, c.want)
		}
	}
}

// A read that may not ask for a bookmark waits until it may, and no longer.
func TestReadsAskForABookmarkInTurn(t *testing.T) {
	s, begun := &Source{}, time.Now()
	for _, c := range []struct{ after, want time.Duration }{
		{0, 0}, {0, readRespite}, {readPatience, readRespite - readPatience}, {readRespite, 0},
		{readRespite + 1, readRespite - 1},
	} {
		if got := s.askForRead(begun.Add(c.after)); got != c.want {
			t.Errorf("%v after the first: %v, want %v", c.after, got, c.want)
		}
	}
}

func TestViewsPrintThemselves(t *testing.T) {
	if got := fmt.Sprint(ViewUnknown, ViewShare, ViewOwned, ViewWhole, View(9)); got != "unknown share owned whole View(9)" {
		t.Error(got)
	}
}

package feed

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// R11: an API server may begin to ignore the shard selector, and to honor it again. What the last answer showed counts,
// and a kind without traffic keeps its verdict.
func TestR11SelectorsThatAreIgnored(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	var h honor
	for i, step := range []struct {
		received, foreign uint64
		ignored, changed  bool
	}{
		{0, 0, false, false}, {10, 0, false, true}, {20, 5, true, true}, {20, 5, true, false}, {30, 8, true, false},
		{40, 8, false, true},
	} {
		changed := h.look(map[schema.GroupKind]Traffic{kind: {Received: step.received, Foreign: step.foreign}})
		ignored, told := changed[kind]
		if got := h.state()[kind]; got != step.ignored || told != step.changed || told && ignored != step.ignored {
			t.Errorf("step %d: ignored %t, told %t; want %t, %t", i, got, told, step.ignored, step.changed)
		}
	}
}

package engine

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// table is the present one.
func (l *lab) table() *table.Table {
	l.t.Helper()
	s, err := l.memory.Client(nil).ReadTable(l.t.Context())
	noError(l.t, err)
	return s.Table
}

// owner is the member that has an object's slot.
func (l *lab) owner(key types.NamespacedName) string {
	return l.table().At(slot.Count(slot.DefaultCount).Of(slot.KeyName.Hash(key.Namespace, key.Name, ""))).Owner
}

// Rule R21, as members run in production: the objects that keep a's workers busy are shared with b, of which it knew
// nothing. A member that shares by number ends that, and is named.
func TestByLoad(t *testing.T) {
	inLab(t, func(l *lab) {
		byLoad := func(o *Options) { o.ByLoad = true }
		a, b := l.start("a", byLoad), l.start("b", byLoad)
		l.wait(time.Minute)
		var busy []types.NamespacedName
		for n := 0; len(busy) < 6; n++ {
			if key := (types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("busy-%d", n)}); l.owner(key) == a.ID() {
				busy = append(busy, key)
			}
		}
		for _, key := range busy {
			go func() {
				for {
					for _, m := range []*labMember{a, b} {
						if _, ok := m.controller.Admit(l.t.Context(), key); ok {
							time.Sleep(2 * time.Second)
							m.controller.Done(key)
						}
					}
					select {
					case <-l.over:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			}()
		}
		held := func() (n int) {
			for _, key := range busy {
				if l.owner(key) == a.ID() {
					n++
				}
			}
			return n
		}
		if n := held(); n != 6 {
			t.Fatalf("a has %d of the busy slots at first, want 6", n)
		}
		l.wait(5 * time.Minute)
		if n := held(); n != 3 {
			t.Errorf("a has %d of the busy slots after 5 minutes, want 3", n)
		}
		counts := l.table().Counts()
		if n := counts[a.ID()]; n != 125 && n != 131 {
			t.Errorf("a has %d slots, want 128 without those of 3 busy objects", n)
		}
		if l.events()["LoadsNotEven"] != 0 {
			t.Error("members that all share by load are told to differ")
		}
		l.start("c")
		l.wait(20 * time.Minute)
		// Who plans first is a matter of IDs. If it is c, it knows of no loads, and the difference is told by rule R14.
		if n := l.events()["LoadsNotEven"]; n > 1 || n == 0 && l.events()["SetupDiffers"] == 0 {
			t.Errorf("events %v, want one LoadsNotEven, or SetupDiffers: c shares by number", l.events())
		}
	})
}

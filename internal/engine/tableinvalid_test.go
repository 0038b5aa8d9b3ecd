package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/store/memory"
)

// TestInvalidTable: members stay while somebody's edit makes the table invalid or another rota's, work on nothing, say
// why they are not ready, and go on once the edit is undone.
func TestInvalidTable(t *testing.T) {
	for field, edit := range map[string]struct{ value, says string }{
		"runs":  {"0-5 nobody 7\n", "nobody is not a member"},
		"slots": {"4096", "4096"},
		"key":   {"UID", "by key UID, but this member was started with 256 slots by key Name"},
	} {
		t.Run(field, func(t *testing.T) {
			inLab(t, func(l *lab) {
				a, b := l.start("web-0"), l.start("web-1")
				l.wait(2 * time.Minute)
				var before string
				set := func(value string) {
					l.memory.Do(func(o *memory.Objects) {
						o.EditTable(func(text map[string]string) { before, text[field] = text[field], value })
					})
				}
				set(edit.value)
				undo := before
				l.wait(5 * time.Minute)
				for _, m := range []*labMember{a, b} {
					if err := m.Ready(nil); err == nil || !strings.Contains(err.Error(), edit.says) {
						t.Errorf("%s: ready: %v, want one about %q", m.pod, err, edit.says)
					}
					if s := m.Status(); s.Open.Len() != 0 {
						t.Errorf("%s: %d slots are open", m.pod, s.Open.Len())
					}
					m.want("invalid", "rota_events_total", `reason="TableInvalid"`, 1)
				}
				set(undo)
				l.wait(time.Minute)
				open := 0
				for _, m := range []*labMember{a, b} {
					if err := m.Ready(nil); err != nil {
						t.Errorf("%s: after the edit was undone: %v", m.pod, err)
					}
					s := m.Status()
					open += s.Open.Len()
				}
				if open != 256 {
					t.Errorf("after the edit was undone, %d slots are open", open)
				}
			})
		})
	}
}

// TestStartsWhileTheTableIsInvalid: a replica that starts meanwhile waits, says for what, and joins once it is valid.
func TestStartsWhileTheTableIsInvalid(t *testing.T) {
	inLab(t, func(l *lab) {
		l.start("web-0")
		l.wait(2 * time.Minute)
		var before string
		set := func(value string) {
			l.memory.Do(func(o *memory.Objects) {
				o.EditTable(func(text map[string]string) { before, text["runs"] = text["runs"], value })
			})
		}
		set("0-5 nobody 7\n")
		undo := before
		late := l.start("web-1")
		l.wait(5 * time.Minute)
		select {
		case err := <-late.done:
			t.Fatalf("it ended: %v", err)
		default:
		}
		if err := late.Ready(nil); err == nil || !strings.Contains(err.Error(), "not joined yet") ||
			!strings.Contains(err.Error(), "nobody is not a member") {
			t.Errorf("ready: %v, want that it has not joined, and why the table is invalid", err)
		}
		set(undo)
		l.wait(time.Minute)
		if err := late.Ready(nil); err != nil {
			t.Errorf("ready, once the edit is undone: %v", err)
		}
	})
}

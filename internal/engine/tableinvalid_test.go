package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/store/memory"
)

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

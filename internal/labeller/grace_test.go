package labeller_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/slot"
)

// What its author labels in time is not patched; the rest is, no sooner than Options.Grace, but at once where the watch
// ends, because the next one does not show it again.
func TestGrace(t *testing.T) {
	const grace = 2 * time.Second
	f := newFake(t)
	start(t, f.config(), labeller.Options{Grace: grace, ScanPeriod: never})
	eventually(t, "the watch is open", func() bool { return f.watches() == 1 })
	begun := time.Now()
	f.put("stamped", map[string]string{})
	f.put("bare", map[string]string{})
	f.put("stamped", map[string]string{label: labeller.Value(slot.KeyName, "ns", "stamped")})
	eventually(t, "bare is labelled", func() bool { return f.label("bare") != "" })
	if took := time.Since(begun); took < grace {
		t.Errorf("bare was labelled after %v, before its author had %v", took, grace)
	}
	if n := len(f.asked("patch stamped")); n != 0 {
		t.Errorf("stamped was patched %d times although its author had labelled it", n)
	}

	f.put("cut", map[string]string{})
	eventually(t, "the watch has told of cut", func() bool { return f.told() == 5 })
	begun = time.Now()
	f.server.CloseClientConnections()
	eventually(t, "cut is labelled", func() bool { return f.label("cut") != "" })
	t.Logf("labelled %v after the watch was cut", time.Since(begun))
	eventually(t, "the watch is open again", func() bool { return f.watches() == 1 })
	f.put("later", map[string]string{})
	eventually(t, "later is labelled", func() bool { return f.label("later") != "" })
	if n := len(f.asked("patch cut")); n != 1 {
		t.Errorf("cut was patched %d times", n)
	}
}

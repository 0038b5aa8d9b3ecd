package demo

import "testing"

func TestProcessors(t *testing.T) {
	before, ok := parseProcessors([]byte("cpu  100 10 50 800 40 0 0 0 5 5\ncpu0 1 2 3\n"))
	if !ok || before != (processors{160, 1000}) {
		t.Fatalf("%+v, %v", before, ok)
	}
	now, ok := parseProcessors([]byte("cpu  130 10 70 840 50 0 0 0\n"))
	if !ok {
		t.Fatal("cannot be read")
	}
	if part := before.busy(now); part == nil || *part != 0.5 {
		t.Errorf("busy %v", part)
	}
	if part := before.busy(before); part != nil {
		t.Errorf("busy %v in no time", *part)
	}
	for _, text := range []string{"", "cpu", "cpu 1 2 x 4 5 6 7 8\n", "intr 1 2 3 4 5 6 7 8\n"} {
		if p, ok := parseProcessors([]byte(text)); ok {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

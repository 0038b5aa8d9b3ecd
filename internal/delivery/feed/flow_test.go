package feed

import (
	"strconv"
	"testing"
	"time"
)

func TestPastRemembersSeconds(t *testing.T) {
	var p past
	start := time.Now()
	if v := p.before(start); v != "" {
		t.Errorf("an empty past remembers %q", v)
	}
	for i := range 100 { // ten a second
		p.add(start.Add(time.Duration(i)*100*time.Millisecond), strconv.Itoa(i))
	}
	for _, test := range []struct {
		at   time.Duration
		want string
	}{
		{20 * time.Second, "90"}, {9 * time.Second, "90"}, {8900 * time.Millisecond, "80"}, {4 * time.Second, "40"},
		{time.Second, "20"}, // further back than it remembers
	} {
		if got := p.before(start.Add(test.at)); got != test.want {
			t.Errorf("before %v: %q, want %q", test.at, got, test.want)
		}
	}
}

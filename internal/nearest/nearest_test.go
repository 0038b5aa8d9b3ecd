package nearest

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 2}} {
		if got := Distance(c.a, c.b); got != c.want || Distance(c.b, c.a) != c.want {
			t.Errorf("%s, %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestHint(t *testing.T) {
	if got, want := Hint("webste", []string{"backup", "website"}), "; the nearest is website"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Hint("website", nil); got != "" {
		t.Errorf("%q of no names", got)
	}
}

package cmdline

import (
	"slices"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/require"
)

func TestLine(t *testing.T) {
	words := []string{"/usr/bin/prog", "--a=1", "-b", "--c", "2", "--a", "3", "--d_e=x", "--list", "-x,*"}
	l, err := Parse("prog", words, "list")
	require.NoError(t, err)
	if got := l.Words(); !slices.Equal(got, words) {
		t.Errorf("written as %q", got)
	}
	if l.Value("a") != "3" || !slices.Equal(l.Values("a"), []string{"1", "3"}) || l.Value("c") != "2" || l.Value("d-e") != "x" ||
		l.Value("list") != "-x,*" || !l.Bool("b", false) || l.Bool("missing", false) || !l.Has("b") || l.Has("missing") {
		t.Errorf("read as %+v", l)
	}
	lists, err := Parse("prog", []string{"prog", "--l=a,b", "--other=x", "--l", "c"})
	if err != nil || !slices.Equal(lists.List("l"), []string{"a", "b", "c"}) || lists.List("none") != nil {
		t.Errorf("%q, %v", lists.List("l"), err)
	}
	changed := l.With("a", "4").With("new", "5").Without("c")
	if got, want := strings.Join(changed.Words(), " "), "/usr/bin/prog --a=4 -b --d_e=x --list -x,* --new=5"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := l.Words(); !slices.Equal(got, words) {
		t.Errorf("a change changed the line it began with: %q", got)
	}
	several := l.With("a", "x", "y").With("more", "1", "2")
	if got, want := strings.Join(several.Words(), " "),
		"/usr/bin/prog --a=x --a=y -b --c 2 --d_e=x --list -x,* --more=1 --more=2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, bad := range [][]string{nil, {"other"}, {"prog", "word"}, {"prog", "--"}, {"prog", "-"}} {
		if _, err := Parse("prog", bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

package coverage_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/test/require"
)

// An error becomes one line of at most 200 bytes, which is safe to print, wherever it comes from.
func TestErrorsInReports(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"short":      {"denied", "denied"},
		"lines":      {"denied:\n\t* spec.host: Required value\r\n", "denied: * spec.host: Required value"},
		"terminal":   {"\x1b[2Jgone", "\ufffd[2Jgone"},
		"no UTF-8":   {"bad \xff byte", "bad \ufffd byte"},
		"200 bytes":  {strings.Repeat("x", 200), strings.Repeat("x", 200)},
		"201 bytes":  {strings.Repeat("x", 201), strings.Repeat("x", 197) + "…"},
		"cut letter": {strings.Repeat("é", 150), strings.Repeat("é", 98) + "…"},
		"all blank":  {strings.Repeat(" ", 5000) + "late", "…"},
	} {
		t.Run(name, func(t *testing.T) {
			got := coverage.ErrorText(errors.New(c.text))
			if got != c.want || len(got) > 200 || !utf8.ValidString(got) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := coverage.ErrorText(nil); got != "" {
		t.Errorf("no error: %q", got)
	}
}

// What a member says of objects never makes its report too large, and whatever their names are, it can be read.
func TestHealthIsBounded(t *testing.T) {
	r := full()
	r.Health = coverage.Health{Failing: 1000}
	for range 1000 {
		r.Health.Worst = append(r.Health.Worst, coverage.KeyHealth{
			Controller: "with \"quotes\"\n", Kind: website, Slot: 7, Failures: 3, Since: time.Unix(0, 0).UTC(),
			Object: types.NamespacedName{Namespace: "no namespace", Name: strings.Repeat("\n", 250)},
		})
	}
	data := encode(t, r)
	back, err := coverage.Decode(data)
	require.NoError(t, err)
	n := len(back.Health.Worst)
	if size := len(data["health"]); size > 16<<10 || n < 10 || n == 1000 || back.Health.Failing != 1000 {
		t.Fatalf("%d objects in %d bytes, and %d in all", n, size, back.Health.Failing)
	}
	if back.Health.Worst[0] != r.Health.Worst[0] {
		t.Errorf("%+v, want %+v", back.Health.Worst[0], r.Health.Worst[0])
	}
	r.Setup = map[string]string{"Large": strings.Repeat("x", 229<<10)}
	if data = encode(t, r); coverage.Size(data) > 230<<10 {
		t.Errorf("%d bytes", coverage.Size(data))
	}
}

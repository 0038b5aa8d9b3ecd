package fronttest

import (
	"fmt"
	"os"
	"testing"

	"github.com/rota-dev/rota/apiservers/front/haproxy"
)

// HAProxy returns the path of HAProxy. Where there is none it skips the test, and says so.
func HAProxy(t testing.TB) string {
	t.Helper()
	path, err := haproxy.Find()
	if err != nil {
		Skip(t, err.Error())
	}
	return path
}

// Skip skips a test, and says why also without -v, so that nobody takes it for passed.
func Skip(t testing.TB, why string) {
	t.Helper()
	text := fmt.Sprintf("SKIPPED: %s: %s", t.Name(), why)
	fmt.Fprintln(os.Stderr, text)
	t.Skip(text)
}

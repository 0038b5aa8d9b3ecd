package fronttest

import (
	"fmt"
	"os"
	"testing"

	"github.com/rota-dev/rota/apiservers/front/haproxy"
)

// HAProxy returns the path of HAProxy. Without HAProxy it skips the test with a message.
func HAProxy(t testing.TB) string {
	t.Helper()
	path, err := haproxy.Find()
	if err != nil {
		Skip(t, err.Error())
	}
	return path
}

// Skip skips a test. It prints the reason even without -v, so that the test is not mistaken for a passed one.
func Skip(t testing.TB, why string) {
	t.Helper()
	text := fmt.Sprintf("SKIPPED: %s: %s", t.Name(), why)
	fmt.Fprintln(os.Stderr, text)
	t.Skip(text)
}

package controlplane

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/test/require"
)

// shared is the control plane of this test binary.
var shared struct {
	once    sync.Once
	options *Options // nil: Main was not called
	plane   *ControlPlane
	err     error
}

// Main is the TestMain of a package whose tests share a control plane. It is started by the first test that calls For
// and stopped after the last test; one that died meanwhile fails the run. Main does not return.
//
// Its goroutines live until then, so a check for leaks in a single test has to ignore those that were there before
// (goleak.IgnoreCurrent after For).
func Main(m *testing.M, o Options) {
	shared.options = &o
	code := m.Run()
	shared.once.Do(func() {}) // no test can start one any more
	if shared.plane != nil {
		if err := shared.plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: the shared control plane:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Parallel has n parallel tests run at a time, unless -parallel says otherwise. Tests that wait for watches and
// backoffs would leave a small machine idle with as many as it has CPUs. Call it from TestMain.
func Parallel(n int) {
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p != nil && p.Value.String() == p.DefValue {
		_ = p.Value.Set(strconv.Itoa(n)) // a number is always accepted
	}
}

// envNone is a variable that has -short skip Essential tests, too: they do not run well beside what has the processors
// for itself.
const envNone = "NO_CONTROL_PLANE"

// essential are the tests that run under -short, too.
var essential sync.Map

// Essential has a test use a control plane under -short, too, with all its subtests. These few are what `make test`
// shows of the real API server; the others wait for `make test-all`. Call it before For, New and Namespace.
func Essential(tb testing.TB) {
	tb.Helper()
	name := tb.Name()
	essential.Store(name, true)
	tb.Cleanup(func() { essential.Delete(name) })
}

func isEssential(name string) bool {
	for {
		if _, ok := essential.Load(name); ok {
			return true
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return false
		}
		name = name[:i]
	}
}

// For returns the control plane that the tests of this package share. The first call starts it. Under -short it skips
// tests that are not Essential. Tests must not stop its servers.
func For(tb testing.TB) *ControlPlane {
	tb.Helper()
	skipIfShort(tb)
	if shared.options == nil {
		tb.Fatal("no shared control plane: call controlplane.Main from TestMain")
	}
	shared.once.Do(func() {
		// The binary may have to be built, so only the test's own time limit applies.
		shared.plane, shared.err = Start(context.Background(), *shared.options)
	})
	if shared.err != nil {
		tb.Fatal(shared.err)
	}
	return shared.plane
}

// New starts a control plane for one test, which is stopped at its end; one that died meanwhile fails the test. Under
// -short it skips tests that are not Essential.
func New(tb testing.TB, o Options) *ControlPlane {
	tb.Helper()
	skipIfShort(tb)
	c, err := Start(tb.Context(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if err := c.Stop(); err != nil {
			tb.Errorf("stop the control plane: %v", err)
		}
	})
	return c
}

// Namespace makes a namespace of the shared control plane for this test.
func Namespace(tb testing.TB) string {
	tb.Helper()
	return For(tb).Namespace(tb)
}

// Namespace makes a namespace whose name begins with the test's. It stays until the control plane is stopped: deleting
// one takes a controller manager.
func (c *ControlPlane) Namespace(tb testing.TB) string {
	tb.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	require.NoError(tb, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix(tb.Name())}}
	if ns, err = client.CoreV1().Namespaces().Create(tb.Context(), ns, metav1.CreateOptions{}); err != nil {
		tb.Fatalf("make a namespace: %v", err)
	}
	return ns.Name
}

func skipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() && (!isEssential(tb.Name()) || os.Getenv(envNone) != "") {
		tb.Skip("needs a control plane: not under -short")
	}
}

// namespacePrefix turns a test's name into the start of a DNS label.
func namespacePrefix(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, test)
	name = strings.Trim(name[:min(len(name), 50)], "-")
	return strings.TrimPrefix(name+"-", "-")
}

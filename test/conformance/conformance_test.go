package conformance_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/test/conformance"
	"github.com/rota-dev/rota/test/require"
)

// asProgram has this test's binary be the Go client's program.
const asProgram = "ROTA_CONFORMANCE_GO"

func TestMain(m *testing.M) {
	if mode := os.Getenv(asProgram); mode != "" {
		if err := program(mode == "stream"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "100"); err != nil { // checks wait most of the time
		panic(err)
	}
	os.Exit(m.Run())
}

func program(stream bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.New(client.Options{
		URLs: []string{os.Getenv("ROTA_DISPATCH_URL")}, TokenFile: os.Getenv("ROTA_DISPATCH_TOKEN_FILE"),
		CAFile: os.Getenv("ROTA_DISPATCH_CA_FILE"),
	})
	if err != nil {
		return err
	}
	grace, err := strconv.Atoi(os.Getenv("ROTA_DISPATCH_GRACE_SECONDS"))
	if err != nil {
		return err
	}
	concurrency, err := strconv.Atoi(os.Getenv("ROTA_DISPATCH_CONCURRENCY"))
	if err != nil {
		return err
	}
	return client.Run(ctx, client.Worker{
		Client: c, Name: os.Getenv("ROTA_DISPATCH_WORKER"), Kinds: strings.Split(os.Getenv("ROTA_DISPATCH_KINDS"), ","),
		Concurrency: concurrency, Stream: stream, Grace: time.Duration(grace) * time.Second,
	}, handle)
}

func note(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv("JOURNAL"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, format+"\n", args...); err != nil {
		panic(err)
	}
}

func handle(ctx context.Context, t *client.Take) (client.Result, error) {
	note("begin %s %d %t", t.Name, t.Attempt, t.Gone)
	words := strings.Split(t.Name, "-")
	n, _ := strconv.Atoi(words[1])
	switch words[0] {
	case "stuck":
		time.Sleep(time.Duration(n) * time.Second)
	case "slow":
		select {
		case <-time.After(time.Duration(n) * time.Second):
		case <-ctx.Done():
			note("stopped %s", t.Name)
			return client.Result{}, context.Cause(ctx)
		}
	case "fail":
		if t.Attempt <= n {
			note("end %s", t.Name)
			return client.Result{}, errors.New("as the name says")
		}
	case "after":
		note("end %s", t.Name)
		return client.Result{After: time.Duration(n) * time.Second}, nil
	}
	note("end %s", t.Name)
	return client.Result{}, nil
}

func goProgram(t testing.TB, mode string) conformance.Program {
	self, err := os.Executable()
	require.NoError(t, err)
	return conformance.Program{Command: []string{self}, Env: []string{asProgram + "=" + mode}, Concurrency: 4}
}

func TestGo(t *testing.T) {
	t.Parallel()
	conformance.Check(t, goProgram(t, "poll"))
}

func TestGoStream(t *testing.T) {
	t.Parallel()
	conformance.Check(t, goProgram(t, "stream"))
}

// needs skips a test where programs are missing that the client runs with.
func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT TESTED: there is no %s on this machine. Install it to have this client checked", name)
		}
	}
}

// clients is the folder of the clients in other languages.
func clients(t testing.TB, elements ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{"..", "..", "clients"}, elements...)...))
	require.NoError(t, err)
	return path
}

func TestPython(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	if exec.Command("python3", "-c", "import sys; sys.exit(sys.version_info < (3, 9))").Run() != nil {
		t.Skip("NOT TESTED: python3 is older than 3.9, or does not start")
	}
	conformance.Check(t, pythonProgram(t))
}

func pythonProgram(t testing.TB) conformance.Program {
	return conformance.Program{
		Command: []string{"python3", "testdata/worker.py"},
		Env:     []string{"PYTHONPATH=" + clients(t, "python"), "PYTHONDONTWRITEBYTECODE=1"}, Concurrency: 4,
	}
}

func TestShell(t *testing.T) {
	t.Parallel()
	needs(t, "bash", "curl", "jq")
	if testing.Short() {
		t.Skip("each key takes a tenth of a second of the CPU")
	}
	conformance.Check(t, shellProgram(t))
}

func shellProgram(t testing.TB) conformance.Program {
	return conformance.Program{
		Command: []string{clients(t, "shell", "worker.sh"), "testdata/handler.sh"}, Kills: true,
		AtOnce: 4, Length: 8 * time.Second,
	}
}

func TestShellCheck(t *testing.T) {
	needs(t, "shellcheck")
	out, err := exec.Command("shellcheck", clients(t, "shell", "worker.sh"), "testdata/handler.sh").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestPythonUnits(t *testing.T) {
	needs(t, "python3")
	cmd := exec.Command("python3", "-B", "-W", "error", "-m", "unittest", "-v", "test_rota_dispatch")
	cmd.Dir = clients(t, "python")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestProgram checks a program that the environment names; see clients/README.md.
func TestProgram(t *testing.T) {
	command := strings.Fields(os.Getenv("ROTA_CONFORMANCE_PROGRAM"))
	if len(command) == 0 {
		t.Skip("ROTA_CONFORMANCE_PROGRAM names none")
	}
	concurrency, _ := strconv.Atoi(os.Getenv("ROTA_CONFORMANCE_CONCURRENCY"))
	conformance.Check(t, conformance.Program{Command: command, Concurrency: concurrency})
}

func BenchmarkGo(b *testing.B)       { conformance.Bench(b, goProgram(b, "poll")) }
func BenchmarkGoStream(b *testing.B) { conformance.Bench(b, goProgram(b, "stream")) }

func BenchmarkPython(b *testing.B) {
	needs(b, "python3")
	conformance.Bench(b, pythonProgram(b))
}

func BenchmarkShell(b *testing.B) {
	needs(b, "bash", "curl", "jq")
	conformance.Bench(b, shellProgram(b))
}

package balance

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/apiservers/front/haproxy"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/process"
)

// ChecksOptions say how to measure what health checks cost an API server.
type ChecksOptions struct {
	// Rate is how many checks per second HAProxy is told to send, a multiple of 10. Each of its servers is checked ten
	// times per second, and all of them are one API server.
	Rate int
	// For is how long the processor's time is counted, for each row and before it without checks. From a second.
	For time.Duration
	// Log gets what happens; nil means nothing does.
	Log io.Writer
}

// A ChecksCost is what checks cost with one kind of key.
type ChecksCost struct {
	Key Key
	// Resumed says whether HAProxy may resume its TLS sessions, as it does by default.
	Resumed bool
	// Rate is how many checks per second the API server answered.
	Rate float64
	// Server and Etcd are the processor's time per check, of the API server and of its etcd, without what they need
	// anyway.
	Server, Etcd time.Duration
}

// Checks measures what the health checks of `rota front` cost an API server, with keys as people have them.
func Checks(ctx context.Context, o ChecksOptions) (costs []ChecksCost, err error) {
	if o.Rate < 10 || o.Rate%10 != 0 || o.For < time.Second {
		return nil, fmt.Errorf("%d checks per second for %v: must be a multiple of 10, and a second or more", o.Rate, o.For)
	}
	dir, err := os.MkdirTemp("", "rota-balance-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	for _, key := range []Key{RSA2048, P256} {
		rows, err := checksOf(ctx, c, filepath.Join(dir, strings.ReplaceAll(string(key), " ", "-")), key, o)
		if err != nil {
			return nil, err
		}
		costs = append(costs, rows...)
	}
	return costs, nil
}

func checksOf(
	ctx context.Context, c *controlplane.ControlPlane, dir string, key Key, o ChecksOptions,
) (costs []ChecksCost, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := newServer(ctx, c, dir, "checked", key, 0)
	if err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	defer s.kill()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := await.Sleep(ctx, o.For); err != nil { // what follows a start is over
		return nil, err
	}
	idle, err := count(ctx, c, s, o.For)
	if err != nil {
		return nil, err
	}
	for _, resumed := range []bool{true, false} {
		run, err := startChecks(ctx, c, dir, s, o.Rate/10, resumed)
		if err != nil {
			return nil, err
		}
		used, err := count(ctx, c, s, o.For)
		run.Kill()
		if err != nil {
			return nil, err
		}
		checks := used.checks
		if checks == 0 {
			return nil, errors.New("the API server was not asked for /readyz")
		}
		longer := used.took.Seconds() / idle.took.Seconds()
		per := func(used, idle time.Duration) time.Duration {
			return (used - time.Duration(float64(idle)*longer)) / time.Duration(checks)
		}
		cost := ChecksCost{
			Key: key, Resumed: resumed, Rate: float64(checks) / used.took.Seconds(),
			Server: per(used.server, idle.server), Etcd: per(used.etcd, idle.etcd),
		}
		if o.Log != nil {
			_, _ = fmt.Fprintf(o.Log, "%+v; without checks the API server used %v in %v\n", cost, idle.server, idle.took)
		}
		costs = append(costs, cost)
	}
	return costs, nil
}

// startChecks starts HAProxy with the configuration of a front, but the server's line n times.
func startChecks(
	ctx context.Context, c *controlplane.ControlPlane, dir string, s *server, n int, resumed bool,
) (*process.Process, error) {
	binary, err := haproxy.Find()
	if err != nil {
		return nil, err
	}
	f := front.Default()
	f.Dir, f.RunDir, f.CA = dir, dir, filepath.Join(c.Dir(), "pki", "ca.crt")
	f.Static, f.Interval.Duration = []string{s.address}, 100*time.Millisecond
	if f.Listen, err = process.FreeAddress(ctx); err != nil {
		return nil, err
	}
	if f.Admin, err = process.FreeAddress(ctx); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	text, err := manyServers(string(f.HAProxy(nil, "")), front.StaticID(s.address), n, resumed)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, front.HAProxyFile)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	run, err := process.Start(process.Options{
		Name: "haproxy", Command: []string{binary, "-db", "-f", config}, Variable: "ROTA_BALANCE",
		Log: filepath.Join(dir, "haproxy.log"),
	})
	if err != nil {
		return nil, err
	}
	err = await.Until(ctx, 100*time.Millisecond, readyLimit, func() string {
		if err := run.Failure(); err != nil {
			return err.Error()
		}
		answer, err := haproxy.Ask(ctx, filepath.Join(dir, front.AdminSocket), "show stat "+front.Backend+" 4 -1")
		if err != nil {
			return err.Error()
		}
		if up := bytes.Count(answer, []byte(",UP,")); up < n {
			return fmt.Sprintf("%d of %d servers are up", up, n)
		}
		return ""
	})
	if err != nil {
		run.Kill()
		return nil, fmt.Errorf("the health checks: %w; HAProxy's log ends:\n%s", err, run.Tail())
	}
	return run, nil
}

// manyServers has the line of a server that is checked n times in a configuration.
func manyServers(config, id string, n int, resumed bool) (string, error) {
	var out strings.Builder
	found := 0
	for line := range strings.Lines(config) {
		if !strings.Contains(line, "server "+id+" ") || !strings.Contains(line, " check ") {
			out.WriteString(line)
			continue
		}
		found++
		if !resumed {
			line = strings.TrimSuffix(line, "\n") + " no-ssl-reuse\n"
		}
		for i := range n {
			out.WriteString(strings.Replace(line, id, fmt.Sprintf("%s-%d", id, i), 1))
		}
	}
	if found != 1 {
		return "", fmt.Errorf("HAProxy's configuration checks server %s in %d lines, want one:\n%s", id, found, config)
	}
	return out.String(), nil
}

// A used is what a time has needed.
type used struct {
	server, etcd, took time.Duration
	checks             int
}

// count counts for some time what an API server and its etcd need.
func count(ctx context.Context, c *controlplane.ControlPlane, s *server, limit time.Duration) (u used, err error) {
	now := func() (u used, err error) {
		if u.server, err = cpu(s.run.PID()); err != nil {
			return u, err
		}
		for name, pid := range c.PIDs() {
			if strings.HasPrefix(name, "etcd") {
				t, err := cpu(pid)
				if err != nil {
					return u, err
				}
				u.etcd += t
			}
		}
		u.checks, err = answeredChecks(ctx, c, s)
		return u, err
	}
	before, err := now()
	if err != nil {
		return u, err
	}
	begin := time.Now()
	if err := await.Sleep(ctx, limit); err != nil {
		return u, err
	}
	after, err := now()
	if err != nil {
		return u, err
	}
	return used{
		server: after.server - before.server, etcd: after.etcd - before.etcd, took: time.Since(begin),
		checks: after.checks - before.checks,
	}, nil
}

// answeredChecks asks an API server how often it has answered to /readyz.
func answeredChecks(ctx context.Context, c *controlplane.ControlPlane, s *server) (int, error) {
	config := rest.CopyConfig(c.Config())
	config.Host = "https://" + s.address
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	text, err := set.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("metrics of %s: %w", s.name, err)
	}
	return readyzRequests(text)
}

// readyzRequests adds up the good answers to /readyz in an API server's metrics.
func readyzRequests(metrics []byte) (int, error) {
	sum := 0.0
	scan := bufio.NewScanner(bytes.NewReader(metrics))
	for scan.Buffer(nil, 1<<20); scan.Scan(); {
		line := scan.Text()
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `"/readyz"`) ||
			!strings.Contains(line, `code="200"`) {
			continue
		}
		_, value, _ := strings.Cut(line, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("a metric of an API server: %q: %w", line, err)
		}
		sum += n
	}
	return int(sum), scan.Err()
}

// tick is the unit of times in /proc. It is the same for all programs on all of Linux's machines.
const tick = 10 * time.Millisecond

// cpu returns the processor's time that a process has used, in user space and in the kernel.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("the processor's time of a process, which needs Linux: %w", err)
	}
	return cpuOf(text)
}

// cpuOf reads the line of a process in /proc. Its name, in parentheses, may have anything in it.
func cpuOf(stat []byte) (time.Duration, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("no line of /proc/PID/stat: %q", stat)
	}
	sum := int64(0)
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("no line of /proc/PID/stat: %q: %w", stat, err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}

// PrintChecks writes costs as a table in Markdown.
func PrintChecks(w io.Writer, costs []ChecksCost) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprintln(t, "| key of the certificate\t| TLS sessions\t| checks per second\t"+
		"| API server, per check\t| etcd, per check\t|")
	_, _ = fmt.Fprintln(t, "| ---\t| ---\t| ---:\t| ---:\t| ---:\t|")
	for _, c := range costs {
		sessions := "resumed"
		if !c.Resumed {
			sessions = "always new"
		}
		_, _ = fmt.Fprintf(t, "| %s\t| %s\t| %.0f\t| %.2f ms\t| %.2f ms\t|\n", c.Key, sessions, c.Rate,
			1000*c.Server.Seconds(), 1000*c.Etcd.Seconds())
	}
	return t.Flush()
}

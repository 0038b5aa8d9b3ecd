package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/cli/check"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/build"
)

// Parts are what can be done alone: to ask the server, to run the tests, and to run the demo.
var Parts = []string{"server", "tests", "demo"}

// Options say how to try a version.
type Options struct {
	// Minor is the version, such as 1.33.
	Minor string
	// Parts are what to do, of Parts. Before has the results of the others.
	Parts  []string
	Before *Record
	// Objects is the number of Websites of the demo.
	Objects int
	// Log is a file that gets what the tests print.
	Log string
	// Progress gets lines for people.
	Progress io.Writer
}

// Try tries one version. It builds its rota-kube first if it has to. What does not work is in the record; the error
// says why there is none.
func Try(ctx context.Context, o Options) (_ *Record, err error) {
	root, err := build.Root()
	if err != nil {
		return nil, err
	}
	binary, err := build.Of(ctx, o.Minor, o.Progress)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(o.Log), 0o755); err != nil {
		return nil, err
	}
	log, err := os.Create(o.Log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	r := &Record{Minor: o.Minor}
	if o.Before != nil {
		r = o.Before
	}
	for _, part := range o.Parts {
		_, _ = fmt.Fprintf(o.Progress, "Kubernetes %s: %s\n", o.Minor, part)
		begin := time.Now()
		switch part {
		case "server":
			if r.Etcd, err = etcdOf(ctx, binary); err == nil {
				err = r.ask(ctx, binary)
			}
		case "tests":
			r.Suites, err = runSuites(ctx, root, binary, log)
			r.TestsSeconds = time.Since(begin).Round(time.Second).Seconds()
		case "demo":
			err = r.demo(ctx, root, binary, o.Objects, log)
		default:
			err = fmt.Errorf("there is no such part: there are %s", strings.Join(Parts, ", "))
		}
		if err != nil {
			return nil, fmt.Errorf("Kubernetes %s, %s (output is in %s): %w", o.Minor, part, o.Log, err)
		}
	}
	r.At = time.Now().UTC().Truncate(time.Second)
	return r, nil
}

// etcdOf returns the version of the etcd in a rota-kube, which says "rota-kube: Kubernetes v1.33.13, etcd 3.5.21, …".
func etcdOf(ctx context.Context, binary string) (string, error) {
	text, err := exec.CommandContext(ctx, binary, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s version: %w", binary, err)
	}
	_, rest, _ := strings.Cut(string(text), "etcd ")
	etcd, _, ok := strings.Cut(rest, ",")
	if !ok {
		return "", fmt.Errorf("%s version: no etcd in %q", binary, text)
	}
	return etcd, nil
}

// ask asks a fresh API server what it has, and what `rota check --pre` says of it.
func (r *Record) ask(ctx context.Context, binary string) (err error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{Binary: binary})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	client, err := kubernetes.NewForConfig(plane.Config())
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	r.Version = version.GitVersion
	const namespace = "operators"
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	if r.Server, err = Ask(ctx, plane.Config(), namespace); err != nil {
		return err
	}
	result, err := check.Run(ctx, plane.Config(), check.Options{
		Rota: types.NamespacedName{Namespace: namespace, Name: "website"}, Pre: true, Self: true,
		Kinds: []schema.GroupKind{{Kind: "ConfigMap"}}, Owned: []schema.GroupKind{{Group: "apps", Kind: "Deployment"}},
	})
	if err != nil {
		return err
	}
	r.Pre = aboutServer(result)
	return nil
}

// aboutServer leaves out what is the same on every server: that it answers, its clock, what does not depend on it, and
// that it was not tried before this.
func aboutServer(result *check.Result) (out []check.Line) {
	for _, group := range result.Groups {
		for _, l := range group.Lines {
			usual := l.Level == check.OK && !slices.Contains([]string{"ServerLacks", "DeliveryImpossible"}, l.Code)
			if !usual && l.Code != "ClockSkew" && l.Code != "VersionUntried" {
				out = append(out, l)
			}
		}
	}
	return out
}

// demo runs rota-demo. Its exit status says only what its report says, too.
func (r *Record) demo(ctx context.Context, root, binary string, objects int, log io.Writer) error {
	program := filepath.Join(root, "bin", "rota-demo")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("%w: build it with `go build -o bin/rota-demo ./cmd/rota-demo`", err)
	}
	cmd := exec.CommandContext(ctx, program, "--objects", strconv.Itoa(objects), "--rate", "10", "--baseline", "5s",
		"--output", "json")
	cmd.Env = append(os.Environ(), build.EnvBinary+"="+binary)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its replicas
	cmd.WaitDelay = time.Minute
	var report, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &report, io.MultiWriter(log, &said)
	r.Demo = Demo{}
	begin := time.Now()
	failed := cmd.Run()
	if err := json.Unmarshal(report.Bytes(), &r.Demo); err != nil {
		return errors.Join(failed, err)
	}
	r.Demo.Seconds = time.Since(begin).Round(time.Second).Seconds()
	if failed != nil {
		_, words, _ := strings.Cut(said.String(), "rota-demo: ")
		if r.Demo.Failures = strings.TrimSpace(words); r.Demo.Failures == "" {
			return failed
		}
	}
	return nil
}

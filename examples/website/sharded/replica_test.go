package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/controlplane"
)

// asReplica makes the test binary run main: it is built with the same modfile as the tests.
const asReplica = "WEBSITE_REPLICA"

func TestMain(m *testing.M) {
	if os.Getenv(asReplica) == "" {
		controlplane.Main(m, controlplane.Options{Audit: true})
	}
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	main()
	os.Exit(0)
}

// replica is a process of the operator.
type replica struct {
	cmd *exec.Cmd
	log bytes.Buffer // read it when the process has ended
}

func startReplica(t *testing.T, kubeconfig, namespace, pages, pod string) *replica {
	t.Helper()
	p := &replica{cmd: exec.Command(os.Args[0], "-kubeconfig", kubeconfig, "-state-dir", pages,
		"-health-probe-bind-address=0", "-metrics-bind-address=0")}
	p.cmd.Args[0] = pod // the user agent's first part: the audit log tells who it was
	p.cmd.Env = append(os.Environ(), asReplica+"=1", "POD_NAME="+pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE="+namespace)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if _, err := p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("%s: %v\n%s", pod, p.cmd.ProcessState, p.log.Bytes())
		}
	})
	return p
}

// leave ends the replica with SIGTERM. It must not have had anything to complain about.
func (p *replica) leave(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
	if bytes.Contains(p.log.Bytes(), []byte("Reconciler error")) {
		t.Errorf("%s reports errors", p.cmd.Args[0])
	}
}

// write is an accepted write of a replica.
type write struct {
	Pod, Resource, Name string
	Received            time.Time
}

// writes returns those of objects in the namespace, but for those of Rota itself and of events.
func writes(t *testing.T, plane *controlplane.ControlPlane, namespace string) []write {
	t.Helper()
	var out []write
	for _, path := range plane.AuditLogs() {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for lines := bufio.NewReader(file); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				break
			}
			var e struct {
				UserAgent, Verb, Stage   string
				ObjectRef                struct{ Resource, Namespace, Name string }
				RequestReceivedTimestamp time.Time
				ResponseStatus           struct{ Code int }
			}
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			pod, _, _ := strings.Cut(e.UserAgent, "/")
			object := e.ObjectRef
			if !strings.HasPrefix(pod, "replica-") || object.Namespace != namespace || e.ResponseStatus.Code > 299 {
				continue
			}
			switch e.Verb {
			case "create", "update", "patch":
			default:
				continue
			}
			switch object.Resource {
			case "websites", "deployments", "services":
				out = append(out, write{pod, object.Resource, object.Name, e.RequestReceivedTimestamp})
			case "configmaps":
				if site, ok := strings.CutSuffix(object.Name, "-page"); ok {
					out = append(out, write{pod, object.Resource, site, e.RequestReceivedTimestamp})
				}
			}
		}
	}
	return out
}

// files returns the names of the pages.
func files(t *testing.T, pages string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(pages, "*.html"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, path := range paths {
		out[filepath.Base(path)] = true
	}
	return out
}

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/examples/internal/replica"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) { replica.Main(m, controlplane.Options{Audit: true}, main) }

func start(t *testing.T, namespace, pages, pod string) *replica.Replica {
	t.Helper()
	return replica.Start(t, namespace, pod, "-state-dir", pages, "-health-probe-bind-address=0", "-metrics-bind-address=0")
}

// leave ends the replica with SIGTERM. It must not have logged an error of a reconcile.
func leave(t *testing.T, r *replica.Replica) {
	t.Helper()
	if err := r.Leave(); err != nil {
		t.Fatalf("after SIGTERM: %v", err)
	}
	if strings.Contains(r.Log(), "Reconciler error") {
		t.Error("a replica reports errors")
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
		require.NoError(t, err)
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
			require.NoError(t, json.Unmarshal(line, &e))
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
	require.NoError(t, err)
	out := map[string]bool{}
	for _, path := range paths {
		out[filepath.Base(path)] = true
	}
	return out
}

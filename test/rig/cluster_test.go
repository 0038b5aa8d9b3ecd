package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/judge"
)

// TestReadAudit: a log is read on from where the last call ended, and a line that is being written is left for later.
func TestReadAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	c := &Cluster{Namespace: "rota", audits: []*auditLog{{path: path}}}
	line := func(version int) string {
		return fmt.Sprintf(`{"stage":"ResponseComplete","verb":"patch","requestURI":"/x","user":{"username":"sa",`+
			`"extra":{"authentication.kubernetes.io/pod-name":["web-1"]}},"objectRef":{"resource":"websites",`+
			`"namespace":"n","name":"s"},"responseStatus":{"code":200},`+
			`"responseObject":{"metadata":{"uid":"u","resourceVersion":"%d"}}}`+"\n", version)
	}
	read := func(text string) (versions []string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		defer file.Close()
		_, err = file.WriteString(text)
		require.NoError(t, err)
		var log judge.Log
		require.NoError(t, c.ReadAudit(&log, "chaos"))
		for _, w := range log.Writes {
			if w.User != "sa/web-1" {
				t.Errorf("written by %q", w.User)
			}
			versions = append(versions, w.Object.Metadata.ResourceVersion)
		}
		return versions
	}
	second := line(2)
	for i, step := range []struct {
		text string
		want []string
	}{{line(1) + second[:50], []string{"1"}}, {"", nil}, {second[50:] + line(3), []string{"2", "3"}}} {
		if diff := cmp.Diff(step.want, read(step.text)); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}

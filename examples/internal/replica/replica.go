// Package replica runs the test binaries of the examples as replicas: processes on a real API server.
package replica

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// variable makes a test binary run the example: it is built with the same modfile as the tests.
const variable = "EXAMPLE_REPLICA"

// Main runs the tests of an example, or the example if Start started this process.
func Main(m *testing.M, o controlplane.Options, main func()) {
	if os.Getenv(variable) == "" {
		controlplane.Main(m, o)
	}
	go func() { // ends with the test, however that ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	main()
	os.Exit(0)
}

// Replica is a process of an example.
type Replica struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

// Start starts a replica with the control plane's kubeconfig and args. It is killed when the test ends.
func Start(t *testing.T, namespace, pod string, args ...string) *Replica {
	t.Helper()
	args = append([]string{"-kubeconfig", controlplane.For(t).Kubeconfig()}, args...)
	r := &Replica{cmd: exec.CommandContext(context.Background(), os.Args[0], args...)} // the cleanup ends it
	// The first part of the user agent, by which audit logs and managedFields name the replica.
	r.cmd.Args[0] = pod
	r.cmd.Env = append(os.Environ(), variable+"=1", "POD_NAME="+pod, "POD_UID=", "CONTAINER_NAME=",
		"POD_NAMESPACE="+namespace)
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	_, err := r.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	t.Cleanup(func() {
		r.Kill()
		if t.Failed() {
			t.Logf("%s: %v\n%s", pod, r.cmd.ProcessState, r.log.Bytes())
		}
	})
	return r
}

// Kill is kill -9.
func (r *Replica) Kill() {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
}

// Leave ends the replica with SIGTERM. The error says how it ended, if not as it should.
func (r *Replica) Leave() error {
	return errors.Join(r.cmd.Process.Signal(syscall.SIGTERM), r.cmd.Wait())
}

// Log returns the log of a replica that has ended.
func (r *Replica) Log() string { return r.log.String() }

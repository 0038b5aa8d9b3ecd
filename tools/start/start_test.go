// Package start runs the commands of docs/start.md, as a reader of the page would.
package start

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	root = "../.."
	// limit is many times what the commands take. It must end before go test's own (Makefile), which says nothing of the
	// commands and leaves their processes behind.
	limit = 15 * time.Minute
)

var block = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestStart runs all blocks of commands in one shell in the checkout, and ends if one fails.
func TestStart(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/start.md"))
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString("set -e -o pipefail\n")
	blocks := block.FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		script.WriteString(b[1])
	}
	if len(blocks) < 7 {
		t.Fatalf("docs/start.md has %d blocks of commands", len(blocks))
	}
	state := filepath.Join(root, "bin", "start")
	if _, err := os.Stat(state); err == nil {
		t.Fatalf("%s exists: somebody goes through the page now, or did not clean up; end it and remove the folder", state)
	}
	t.Cleanup(func() { _ = os.RemoveAll(state) })
	tools, commands := t.TempDir(), script.String()
	path := tools
	if kube := os.Getenv("ROTA_KUBE"); kube != "" { // it is built already
		path += ":" + filepath.Dir(kube)
		commands = strings.Replace(commands, "make kube\n", "", 1)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(tools, "kubectl"), "./kubectl")
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("kubectl: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", commands)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the control plane and the replicas are in it, too
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	t.Logf("%s", out.String())
	if err != nil {
		t.Fatalf("the commands of docs/start.md: %v", err)
	}
	text := out.String()
	for _, want := range []string{"web-0-", "web-1-", "web-3-", "Expelled", "kind: ConfigMap",
		"works on Website default/hello-7", "works on Service default/hello-7", "was expelled", "how far back this reaches"} {
		if !strings.Contains(text, want) {
			t.Errorf("the output has no %q", want)
		}
	}
	if left, err := os.ReadDir(state); err == nil {
		t.Errorf("left behind in %s: %v", state, left)
	}
}

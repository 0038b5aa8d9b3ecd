package alerts

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	root = "../.."
	// patience is many times what anything here takes.
	patience = 5 * time.Minute
)

// cluster is a control plane on loopback, and the processes that work with it.
type cluster struct {
	t          *testing.T
	dir        string // of the programs, configurations and logs
	kubeconfig string
	server     string
	client     *http.Client
}

// startCluster builds the programs and starts the control plane. `make kube` has built that, or somebody else has:
// ROTA_KUBE.
func startCluster(t *testing.T, programs ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", c.dir + "/"}, programs...)...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	kube := os.Getenv("ROTA_KUBE")
	if kube == "" {
		kube = filepath.Join(root, "bin", "rota-kube")
	}
	if _, err := os.Stat(kube); err != nil {
		t.Fatalf("there is no control plane: run `make kube`, or set ROTA_KUBE: %v", err)
	}
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), kube, "up", "--json")
	cmd.Stderr = &errs
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, time.Minute
	in, err := cmd.StdinPipe() // it ends with it
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(in.Close(), cmd.Wait()) })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var info struct {
		Kubeconfig string
		APIServers []string
	}
	if err := errors.Join(err, json.Unmarshal(line, &info)); err != nil || len(info.APIServers) == 0 {
		t.Fatalf("the control plane does not start: %v\n%s", err, errs.String())
	}
	c.kubeconfig, c.server = info.Kubeconfig, info.APIServers[0]
	c.connect()
	return c
}

// connect makes a client of the kubeconfig.
func (c *cluster) connect() {
	c.t.Helper()
	var config struct {
		Clusters []struct {
			Cluster struct {
				CA string `yaml:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert string `yaml:"client-certificate-data"`
				Key  string `yaml:"client-key-data"`
			}
		}
	}
	text, err := os.ReadFile(c.kubeconfig)
	if err := errors.Join(err, yaml.Unmarshal(text, &config)); err != nil {
		c.t.Fatal(err)
	}
	user := config.Users[0].User
	cert, err := tls.X509KeyPair(decoded(c.t, user.Cert), decoded(c.t, user.Key))
	if err != nil {
		c.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(decoded(c.t, config.Clusters[0].Cluster.CA))
	c.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS13,
	}}}
	c.t.Cleanup(c.client.CloseIdleConnections)
}

// send sends a request to the API server, and returns the answer.
func (c *cluster) send(method, path, contentType, body string) []byte {
	c.t.Helper()
	answer, code := send(c.t, c.client, method, c.server+path, map[string]string{"Content-Type": contentType}, body)
	if code >= 300 {
		c.t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	return answer
}

// apply applies one object, written as YAML, at its path.
func (c *cluster) apply(path, object string) {
	c.t.Helper()
	c.send(http.MethodPatch, path+"?fieldManager=test&force=true", "application/apply-patch+yaml", object)
}

func send(t *testing.T, client *http.Client, method, url string, header map[string]string, body string,
) ([]byte, int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer, resp.StatusCode
}

// run starts a program that startCluster has built. It is killed at the end, if it has not ended.
func (c *cluster) run(name, program string, args ...string) *exec.Cmd {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.dir, program), args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, time.Minute
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "POD_NAMESPACE=default", "POD_NAME="+name, "POD_UID=",
		"CONTAINER_NAME=")
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // or it has ended
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && c.t.Failed() {
			c.t.Logf("%s:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
	return cmd
}

// freeAddress returns an address on loopback at which nobody listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return fmt.Sprint(l.Addr())
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const goarch = runtime.GOARCH

func parseTag(ref string) (name.Tag, error) { return name.NewTag(ref) }

func must(t *testing.T) func(name.Tag, error) name.Tag {
	return func(tag name.Tag, err error) name.Tag {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return tag
	}
}

// newUser is somebody with a release's files, a cluster, and a few programs: no Go, no compiler, no checkout.
type newUser struct {
	t                   *testing.T
	home, bin, registry string
	config              *rest.Config
	typed               *kubernetes.Clientset
}

// run runs one of the programs in the user's PATH, and returns what it printed.
func (u *newUser) run(program string, args ...string) (string, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(u.bin, program), args...)
	cmd.Dir = u.home
	cmd.Env = []string{"PATH=" + u.bin, "HOME=" + u.home, "KUBECONFIG=" + filepath.Join(u.home, "kubeconfig")}
	out, err := cmd.CombinedOutput()
	u.t.Logf("$ %s %s\n%s", program, strings.Join(args, " "), out)
	return string(out), err
}

// do is run, of what must succeed and print something.
func (u *newUser) do(want, program string, args ...string) {
	u.t.Helper()
	if out, err := u.run(program, args...); err != nil || !strings.Contains(out, want) {
		u.t.Fatalf("%s: %v, want %q", program, err, want)
	}
}

// TestReleaseUser goes the way of docs/install.md with the files of a release alone: it checks and unpacks the archive,
// looks at a cluster, installs the example from the charts' registry, sees it work, and removes it. The cluster is a real
// control plane without nodes. In place of the kubelet this test runs the images' program for the Deployment's Pods, as
// the image says, with the Pod's arguments, environment, ServiceAccount and user, and the image's files as its root.
func TestReleaseUser(t *testing.T) {
	dist := release(t)
	m := metadata(t, dist)
	u := &newUser{t: t, home: t.TempDir(), bin: t.TempDir(), registry: published(t, dist)}
	for _, program := range []string{"tar", "gzip", "sha256sum", "helm"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(u.bin, program)); err != nil {
			t.Fatal(err)
		}
	}
	archive := "rota_linux_" + goarch + ".tar.gz"
	for _, name := range []string{archive, "checksums.txt"} {
		if err := os.WriteFile(filepath.Join(u.home, name), read(t, dist, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u.do(archive+": OK", "sha256sum", "--check", "--ignore-missing", "checksums.txt")
	u.do("", "tar", "-xzf", archive, "-C", u.bin, "rota")
	u.do(`"version": "`+m.Tag+`"`, "rota", "version", "-o", "json")

	u.cluster()
	u.do("√", "rota", "check", "--pre", "-n", "operators")
	u.do("STATUS: deployed", "helm", "install", "website-operator", "oci://"+u.registry+"/charts/website", "--version",
		strings.TrimPrefix(m.Tag, "v"), "--plain-http", "-n", "operators", "--create-namespace")
	u.do("√", "rota", "check", "--pre", "website", "-n", "operators", "--service-account", "operators/website-operator",
		"--kind", "Website.web.example.com", "--owned", "Deployment.apps", "--owned", "Service", "--owned", "ConfigMap")

	var replicas []*exec.Cmd
	for _, pod := range u.pods(3)[:2] {
		replicas = append(replicas, u.kubelet(&pod))
	}
	sites, err := dynamic.NewForConfig(u.config)
	if err != nil {
		t.Fatal(err)
	}
	websites := sites.Resource(schema.GroupVersionResource{Group: "web.example.com", Version: "v1", Resource: "websites"})
	for i := range 10 {
		_, err := websites.Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "web.example.com/v1", "kind": "Website",
			"metadata": map[string]any{"name": fmt.Sprintf("hello-%d", i)}, "spec": map[string]any{"title": "Hello"},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	u.eventually("each Website has a Service", func() bool {
		services, err := u.typed.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
		n := 0
		for i := range services.Items {
			if strings.HasPrefix(services.Items[i].Name, "hello-") {
				n++
			}
		}
		return err == nil && n == 10
	})
	u.eventually("both are members, and nothing is on the move", func() bool {
		out, err := u.run("rota", "verify", "website", "-n", "operators")
		status, _ := u.run("rota", "status", "website", "-n", "operators", "-o", "json")
		var s struct{ Members []struct{ Pod string } }
		return err == nil && json.Unmarshal([]byte(status), &s) == nil && len(s.Members) == 2 && out != ""
	})
	u.do("works on Website default/hello-7", "rota", "who", "website/hello-7", "-n", "default")

	for _, cmd := range replicas {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	}
	u.do("uninstalled", "helm", "uninstall", "website-operator", "-n", "operators")
	u.eventually("no Pods", func() bool { return len(u.podsNow()) == 0 })
	u.do("", "rota", "uninstall", "website", "-n", "operators", "--yes")
}

// cluster starts a control plane, as `rota-kube up` does, which is no part of a release.
func (u *newUser) cluster() {
	u.t.Helper()
	kube, err := filepath.Abs(filepath.Join(root, "bin/rota-kube"))
	if err != nil {
		u.t.Fatal(err)
	}
	path := filepath.Join(u.home, "kubeconfig")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.t.Context()), 15*time.Minute) // the test's ends before
	u.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, kube, "up", "--json", "--controller-manager", "--kubeconfig", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	commands, err := cmd.StdinPipe() // it ends with this
	if err != nil {
		u.t.Fatal(err)
	}
	ready, err := cmd.StdoutPipe() // a line once it is up
	if err != nil {
		u.t.Fatal(err)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		_ = commands.Close()
		if err := cmd.Wait(); err != nil {
			u.t.Logf("rota-kube: %v\n%s", err, log.String())
		}
	})
	late := time.AfterFunc(3*time.Minute, cancel)
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		u.t.Fatalf("the control plane is not up: %v", err)
	}
	late.Stop()
	if u.config, err = clientcmd.BuildConfigFromFlags("", path); err != nil {
		u.t.Fatal(err)
	}
	if u.typed, err = kubernetes.NewForConfig(u.config); err != nil {
		u.t.Fatal(err)
	}
}

func (u *newUser) podsNow() []corev1.Pod {
	list, err := u.typed.CoreV1().Pods("operators").List(u.t.Context(), metav1.ListOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	return list.Items
}

// pods waits for the Pods of the Deployment.
func (u *newUser) pods(n int) (found []corev1.Pod) {
	u.t.Helper()
	u.eventually(fmt.Sprintf("%d Pods", n), func() bool {
		found = u.podsNow()
		return len(found) == n
	})
	return found
}

// kubelet runs the container of a Pod, from its image in the registry.
func (u *newUser) kubelet(pod *corev1.Pod) *exec.Cmd {
	u.t.Helper()
	container := pod.Spec.Containers[0]
	img, config := pull(u.t, strings.Replace(container.Image, "ghcr.io/rota-dev", u.registry, 1), goarch)
	dir := u.t.TempDir()
	unpack(u.t, img, dir)
	// The volumes: the ServiceAccount's token, bound to the Pod, and the folder of pages.
	request, err := u.typed.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(u.t.Context(), pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		u.t.Fatal(err)
	}
	account := filepath.Join(dir, "var/run/secrets/kubernetes.io/serviceaccount")
	pages := filepath.Join(dir, container.VolumeMounts[0].MountPath)
	for _, d := range []string{account, pages} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			u.t.Fatal(err)
		}
	}
	if err := os.Chown(pages, user, user); err != nil {
		u.t.Skipf("only root may run programs as another user: %v", err)
	}
	for name, text := range map[string][]byte{
		"token": []byte(request.Status.Token), "ca.crt": u.config.CAData, "namespace": []byte(pod.Namespace),
	} {
		if err := os.WriteFile(filepath.Join(account, name), text, 0o644); err != nil { // for the container's user
			u.t.Fatal(err)
		}
	}
	args := append(config.Config.Entrypoint[1:], container.Args...)
	for i, arg := range args { // all replicas share this machine's ports
		if name, _, _ := strings.Cut(arg, "="); strings.HasSuffix(name, "-bind-address") {
			args[i] = name + "=127.0.0.1:0"
		}
	}
	cmd := exec.CommandContext(u.t.Context(), config.Config.Entrypoint[0], args...)
	confined(u.t, cmd, dir)
	host, port, _ := strings.Cut(strings.TrimPrefix(u.config.Host, "https://"), ":")
	cmd.Env = append(config.Config.Env, "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	values := map[string]string{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "metadata.uid": string(pod.UID),
	}
	for _, e := range container.Env {
		if e.ValueFrom != nil {
			e.Value = values[e.ValueFrom.FieldRef.FieldPath]
		}
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	var log bytes.Buffer // is read once it has ended
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if u.t.Failed() {
			u.t.Logf("%s: %v\n%s", pod.Name, cmd.ProcessState, log.String())
		}
	})
	return cmd
}

func (u *newUser) eventually(what string, done func() bool) {
	u.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !done(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			u.t.Fatalf("never: %s", what)
		}
	}
}

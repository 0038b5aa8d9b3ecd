package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/app"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/build"
	"github.com/rota-dev/rota/test/rig/process"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	controlplane.Main(m, controlplane.Options{})
}

const audience = "rota.dev/dispatch"

// world is a namespace with a dispatcher, and everything that scales its workers.
type world struct {
	*kubernetes.Clientset
	t         *testing.T
	namespace string
	dir       string
}

// account makes a ServiceAccount that may do anything, and a file with a token.
func (x *world) account(name string) (token, file string) {
	x.t.Helper()
	ctx := x.t.Context()
	_, err := x.CoreV1().ServiceAccounts(x.namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: x.namespace + "-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: x.namespace, Name: name}},
	}
	if _, err := x.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		x.t.Fatal(err)
	}
	request := func(audiences ...string) string {
		review, err := x.CoreV1().ServiceAccounts(x.namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences},
		}, metav1.CreateOptions{})
		if err != nil {
			x.t.Fatal(err)
		}
		return review.Status.Token
	}
	return request(), x.file(name+"-token", []byte(request(audience)))
}

func (x *world) file(name string, content []byte) string {
	x.t.Helper()
	path := filepath.Join(x.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		x.t.Fatal(err)
	}
	return path
}

// certificate writes one for names.
func (x *world) certificate(name string, names ...string) (crt, key string) {
	x.t.Helper()
	c, k, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, names)
	if err != nil {
		x.t.Fatal(err)
	}
	return x.file(name+".crt", c), x.file(name+".key", k)
}

// TestScales: the HorizontalPodAutoscaler of the kube-controller-manager adds workers while keys wait, and takes them
// away when none does.
func TestScales(t *testing.T) {
	config := controlplane.For(t).Config()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	x := &world{clientset, t, controlplane.Namespace(t), t.TempDir()}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer running.Wait()
	defer stop()
	url, ca, token := x.dispatcher(ctx, &running, config)
	x.adapter(ctx, &running, config, url, ca, token)
	x.autoscaler(t)
	deployment := x.deployment()
	workers := &crew{options: client.Options{URLs: []string{url}, TokenFile: token, CAFile: ca}, t: t}
	running.Go(func() { x.runs(ctx, deployment, workers) })
	const objects = 500
	for i := range objects {
		_, err := x.CoreV1().ConfigMaps(x.namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "object-" + strconv.Itoa(i), Labels: map[string]string{"scaled": "yes"}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	scaled := func(n, worked int) {
		t.Helper()
		err := await.Until(ctx, 100*time.Millisecond, 2*time.Minute, func() string {
			if now, done := workers.count(); now != n || done < worked {
				return fmt.Sprintf("%d workers, want %d; %d keys of %d", now, n, done, worked)
			}
			return ""
		})
		if err != nil {
			hpa, getErr := x.AutoscalingV2().HorizontalPodAutoscalers(x.namespace).Get(ctx, "website-worker", metav1.GetOptions{})
			t.Fatalf("%v; %+v, %v", err, hpa.Status, getErr)
		}
	}
	scaled(10, 0)
	scaled(1, objects)
}

// dispatcher runs a dispatcher.
func (x *world) dispatcher(ctx context.Context, running *sync.WaitGroup, config *rest.Config) (url, ca, token string) {
	x.t.Helper()
	bearer, file := x.account("dispatcher")
	crt, key := x.certificate("dispatcher")
	c := &app.Config{
		Name: "tier", Namespace: x.namespace, TokenFile: file, Metrics: "localhost:0",
		Kinds:         []app.Kind{{Kind: "ConfigMap", Namespaces: []string{x.namespace}, Selector: "scaled=yes"}},
		LeaseDuration: app.Duration(4 * time.Second),
		Server: app.Server{Listen: "127.0.0.1:0", TLS: app.TLS{
			CertFile: crt, KeyFile: key, CAFile: crt, ServerName: "localhost",
		}},
	}
	if err := c.Check(); err != nil {
		x.t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(config)
	cfg.BearerToken, cfg.QPS = bearer, -1
	d, err := app.New(ctx, cfg, c, rota.Identity{Pod: "tier-0"}, logr.Discard())
	if err != nil {
		x.t.Fatal(err)
	}
	running.Go(func() {
		if err := d.Run(ctx); err != nil {
			x.t.Error(err)
		}
	})
	return d.URL(), crt, file
}

// adapter runs this example, and has the API server ask it.
func (x *world) adapter(ctx context.Context, running *sync.WaitGroup, config *rest.Config, url, ca, token string) {
	x.t.Helper()
	crt, key := x.certificate("scaling", "scaling."+x.namespace+".svc")
	port := freePort(x.t)
	running.Go(func() {
		err := run(ctx, []string{
			"--url", url, "--ca-file", ca, "--token-file", token, "--listen", "127.0.0.1:" + port, "--tls-cert-file", crt,
			"--tls-key-file", key,
		})
		if err != nil {
			x.t.Error(err)
		}
	})
	_, err := x.CoreV1().Services(x.namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "scaling"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	service := &unstructured.Unstructured{}
	x.read("apiservice.yaml", service)
	bundle, err := os.ReadFile(crt)
	if err != nil {
		x.t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, set := range []struct {
		value any
		at    []string
	}{
		{base64.StdEncoding.EncodeToString(bundle), []string{"spec", "caBundle"}},
		{x.namespace, []string{"spec", "service", "namespace"}}, {number, []string{"spec", "service", "port"}},
	} {
		if err := unstructured.SetNestedField(service.Object, set.value, set.at...); err != nil {
			x.t.Fatal(err)
		}
	}
	resources, err := dynamic.NewForConfig(config)
	if err != nil {
		x.t.Fatal(err)
	}
	services := resources.Resource(schema.GroupVersionResource{
		Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices",
	})
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() {
		_ = services.Delete(context.Background(), service.GetName(), metav1.DeleteOptions{}) // the control plane ends anyway
	})
	path := base + "/namespaces/" + x.namespace + "/rota_dispatch_pending"
	err = await.Until(ctx, 200*time.Millisecond, time.Minute, func() string {
		if text, err := x.RESTClient().Get().AbsPath(path).DoRaw(ctx); err != nil {
			return fmt.Sprintf("%v: %s", err, text)
		}
		return ""
	})
	if err != nil {
		x.t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := process.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// read reads a manifest of this folder.
func (x *world) read(file string, into any) {
	x.t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		x.t.Fatalf("%s: %v", file, err)
	}
}

// autoscaler runs the kube-controller-manager's controller, with the example's HorizontalPodAutoscaler.
func (x *world) autoscaler(t *testing.T) {
	t.Helper()
	binary, err := build.Binary(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(process.Options{
		Name: "kube-controller-manager", Log: filepath.Join(x.dir, "kcm.log"), Variable: "ROTA_UNUSED",
		Command: []string{
			binary, "controller-manager", "--kubeconfig=" + controlplane.For(t).Kubeconfig(), "--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=" + freePort(t), "--cert-dir=" + x.dir,
			"--controllers=horizontal-pod-autoscaler-controller", "--horizontal-pod-autoscaler-sync-period=1s",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Failure(); err != nil {
			t.Error(err)
		}
		p.Kill()
	})
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	x.read("hpa.yaml", hpa)
	hpa.Namespace = x.namespace
	hpa.Spec.Metrics[0].External.Metric.Selector.MatchLabels["kind"] = "ConfigMap"
	soon := int32(3)
	hpa.Spec.Behavior.ScaleDown.StabilizationWindowSeconds = &soon
	_, err = x.AutoscalingV2().HorizontalPodAutoscalers(x.namespace).Create(t.Context(), hpa, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// deployment makes that of the workers, with one replica.
func (x *world) deployment() string {
	x.t.Helper()
	one, about := int32(1), map[string]string{"app": "worker"}
	_, err := x.AppsV1().Deployments(x.namespace).Create(x.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "website-worker"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: about},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: about},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "worker"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		x.t.Fatal(err)
	}
	return "website-worker"
}

// runs does what the Deployment's controller and kubelets do: it runs as many workers as there should be, and says how
// many there are.
func (x *world) runs(ctx context.Context, name string, workers *crew) {
	defer workers.scale(ctx, 0)
	for await.Sleep(ctx, 100*time.Millisecond) == nil {
		d, err := x.AppsV1().Deployments(x.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			continue
		}
		workers.scale(ctx, int(*d.Spec.Replicas))
		if d.Status.Replicas != *d.Spec.Replicas {
			d.Status.Replicas = *d.Spec.Replicas
			_, _ = x.AppsV1().Deployments(x.namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}) // or next time
		}
	}
}

// crew are workers.
type crew struct {
	options client.Options
	t       *testing.T

	mu     sync.Mutex
	ends   []context.CancelFunc
	ended  sync.WaitGroup
	worked map[string]bool
}

func (c *crew) count() (workers, worked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends), len(c.worked)
}

// scale starts or ends workers. Ending them all waits for them.
func (c *crew) scale(ctx context.Context, n int) {
	c.mu.Lock()
	for len(c.ends) < n {
		life, end := context.WithCancel(ctx)
		name := "worker-" + strconv.Itoa(len(c.ends))
		c.ends = append(c.ends, end)
		c.ended.Go(func() { c.work(life, name) })
	}
	for len(c.ends) > n {
		c.ends[len(c.ends)-1]()
		c.ends = c.ends[:len(c.ends)-1]
	}
	c.mu.Unlock()
	if n == 0 {
		c.ended.Wait()
	}
}

func (c *crew) work(ctx context.Context, name string) {
	one, err := client.New(c.options)
	if err != nil {
		c.t.Error(err)
		return
	}
	err = client.Run(ctx, client.Worker{Client: one, Name: name}, func(ctx context.Context, t *client.Take) (client.Result,
		error,
	) {
		if err := await.Sleep(ctx, 150*time.Millisecond); err != nil {
			return client.Result{}, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.worked == nil {
			c.worked = map[string]bool{}
		}
		c.worked[t.Name] = true
		return client.Result{}, nil
	})
	if err != nil {
		c.t.Error(err)
	}
}

// told are figures as those of dispatchers.
type told client.Stats

func (f told) Stats(context.Context) (client.Stats, error) { return client.Stats(f), nil }

// TestFigures: the figures of all kinds, or of those that are selected, and none if some are missing.
func TestFigures(t *testing.T) {
	kinds := []client.KindStats{{Kind: "Pod", Pending: 3, OldestSeconds: 1.5}, {Kind: "Node", Pending: 4}}
	get := func(s client.Stats, path string) (int, string) {
		w := httptest.NewRecorder()
		newHandler(told(s)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, base+path, nil))
		return w.Code, w.Body.String()
	}
	all, pod := "/namespaces/a/rota_dispatch_pending", "/namespaces/a/rota_dispatch_oldest_seconds?labelSelector=kind%3DPod"
	for _, c := range []struct {
		stats      client.Stats
		path       string
		code       int
		has, lacks string
	}{
		{client.Stats{Dispatchers: 1, Kinds: kinds}, all, 200, `"value":"4"`, "1500m"},
		{client.Stats{Dispatchers: 1, Kinds: kinds}, pod, 200, `"value":"1500m"`, "Node"},
		{client.Stats{Dispatchers: 3, Silent: 1, Kinds: kinds}, all, 503, "1 of 3 dispatchers do not answer", "items"},
		{client.Stats{}, "/namespaces/a/rota_dispatch_ready", 404, "no metric rota_dispatch_ready", "items"},
		{client.Stats{}, all + "?labelSelector=%3D%3D", 400, "labelSelector", "items"},
		{client.Stats{}, "", 200, "rota_dispatch_oldest_seconds", ""},
	} {
		code, body := get(c.stats, c.path)
		if code != c.code || !strings.Contains(body, c.has) || c.lacks != "" && strings.Contains(body, c.lacks) {
			t.Errorf("%s: %d %s", c.path, code, body)
		}
	}
}

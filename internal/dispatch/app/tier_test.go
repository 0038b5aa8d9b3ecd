package app_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/app"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	controlplane.Main(m, controlplane.Options{})
}

const audience = "rota.dev/dispatch"

// cluster is a namespace with a ServiceAccount for dispatchers and one for workers.
type cluster struct {
	*kubernetes.Clientset
	t         *testing.T
	namespace string
	dir       string
	roots     *x509.CertPool
	replicas  atomic.Int32
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, namespace: controlplane.Namespace(t), dir: t.TempDir(), roots: x509.NewCertPool()}
	var err error
	if c.Clientset, err = kubernetes.NewForConfig(controlplane.For(t).Config()); err != nil {
		t.Fatal(err)
	}
	rules := append(permission.Rules("tier"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}})
	plane := controlplane.For(t)
	plane.MakeAccount(t, c.namespace, "dispatcher", rules...)
	plane.MakeAccount(t, c.namespace, "worker", rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"take", "get"},
	})
	plane.MakeAccount(t, c.namespace, "stranger")
	c.file("token", []byte(c.token("dispatcher", audience)))
	chain, key, err := cert.GenerateSelfSignedCertKey("tier.svc", nil, nil)
	require.NoError(t, err)
	c.file("tls.crt", chain)
	c.file("tls.key", key)
	c.roots.AppendCertsFromPEM(chain)
	return c
}

func (c *cluster) file(name string, content []byte) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), content, 0o600))
}

// delegate lets the dispatchers review tokens and permissions.
func (c *cluster) delegate() {
	c.t.Helper()
	_, err := c.RbacV1().ClusterRoleBindings().Create(c.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.namespace},
		Subjects:   []rbacv1.Subject{controlplane.Account(c.namespace, "dispatcher")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) token(account string, audiences ...string) string {
	c.t.Helper()
	return controlplane.For(c.t).Token(c.t, c.namespace, account, audiences...)
}

// config returns what a dispatcher is configured with.
func (c *cluster) config(change func(*app.Config)) *app.Config {
	c.t.Helper()
	config := &app.Config{
		Name: "tier", Namespace: c.namespace, Kinds: []app.Kind{{
			Kind: "ConfigMap", Namespaces: []string{c.namespace}, Selector: "tier=yes",
		}},
		LeaseDuration: app.Duration(4 * time.Second), TokenFile: filepath.Join(c.dir, "token"), Metrics: "localhost:0",
		Takes: app.Takes{Length: app.Duration(5 * time.Second)},
		Server: app.Server{Listen: "127.0.0.1:0", TLS: app.TLS{
			CertFile: filepath.Join(c.dir, "tls.crt"), KeyFile: filepath.Join(c.dir, "tls.key"),
			CAFile: filepath.Join(c.dir, "tls.crt"), ServerName: "tier.svc",
		}},
	}
	if change != nil {
		change(config)
	}
	require.NoError(c.t, config.Check())
	return config
}

// running is a dispatcher that runs.
type running struct {
	*app.Dispatcher
	t     *testing.T
	leave context.CancelFunc
	ended chan error
}

// start runs a dispatcher until the end of the test.
func (c *cluster) start(config *app.Config) *running {
	c.t.Helper()
	cfg := rest.AnonymousClientConfig(controlplane.For(c.t).Config())
	cfg.BearerToken, cfg.QPS = c.token("dispatcher"), -1
	identity := rota.Identity{Pod: "tier-" + strconv.Itoa(int(c.replicas.Add(1)))}
	d, err := app.New(c.t.Context(), cfg, config, identity, funcr.New(func(_, _ string) {}, funcr.Options{}))
	require.NoError(c.t, err)
	app.SetLook(d, 200*time.Millisecond)
	ctx, leave := context.WithCancel(context.Background())
	r := &running{d, c.t, leave, make(chan error, 1)}
	go func() {
		err := d.Run(ctx)
		r.ended <- err
		close(r.ended)
	}()
	c.t.Cleanup(func() {
		leave()
		<-r.ended
	})
	return r
}

// end waits until it has left.
func (r *running) end() {
	r.t.Helper()
	r.leave()
	err := require.Receive(r.t, r.ended, time.Minute, "a dispatcher does not end")
	require.NoError(r.t, err)
}

// get returns what the side server answers.
func (r *running) get(path string) (code int, text string) {
	r.t.Helper()
	answer, err := http.Get(r.Metrics() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body)
}

func (r *running) ready() {
	r.t.Helper()
	r.until("ready", func() string {
		if code, text := r.get("/readyz"); code != http.StatusOK {
			return fmt.Sprintf("%d %s", code, text)
		}
		return ""
	})
}

func (r *running) until(what string, check func() string) {
	r.t.Helper()
	if err := await.Until(r.t.Context(), 20*time.Millisecond, 30*time.Second, check); err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// client sends requests with a token.
type client struct {
	*http.Client
	t     *testing.T
	token string
}

func (c *cluster) client(token string) *client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.roots, ServerName: "tier.svc"}, ForceAttemptHTTP2: true, // Go's default is 1.2
	}
	c.t.Cleanup(transport.CloseIdleConnections)
	return &client{&http.Client{Transport: transport}, c.t, token}
}

// post returns the code, and decodes the answer.
func (c *client) post(url string, in, out any) (code int) {
	c.t.Helper()
	text, err := json.Marshal(in)
	require.NoError(c.t, err)
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, url, bytes.NewReader(text))
	require.NoError(c.t, err)
	r.Header.Set("Content-Type", wire.TypeJSON)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.Do(r)
	require.NoError(c.t, err)
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		c.t.Fatal(err)
	}
	if out != nil && len(text) > 0 {
		if err := json.Unmarshal(text, out); err != nil {
			c.t.Fatalf("%s: %v", text, err)
		}
	}
	return answer.StatusCode
}

// refused checks that a request is.
func (c *client) refused(url string, in any, code int, problem string) (detail string) {
	c.t.Helper()
	var p wire.Problem
	got := c.post(url, in, &p)
	if got != code || p.Type != wire.ProblemBase+problem || p.Status != code {
		c.t.Errorf("%d %+v, want %d %s", got, p, code, problem)
	}
	return p.Detail
}

// take waits for a key.
func (c *client) take(url string) wire.Take {
	c.t.Helper()
	for range 30 {
		var out wire.TakeResponse
		if code := c.post(url+wire.PathTake, wire.TakeRequest{Worker: "w", WaitSeconds: 1}, &out); code != http.StatusOK {
			c.t.Fatalf("code %d", code)
		}
		if len(out.Takes) > 0 {
			return out.Takes[0]
		}
	}
	c.t.Fatal("no key comes")
	return wire.Take{}
}

func (c *cluster) object(name string) {
	c.t.Helper()
	_, err := c.CoreV1().ConfigMaps(c.namespace).Create(c.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": "yes"}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// TestServe: two dispatchers serve workers with tokens. One leaves while a worker has a key of it: the worker can still
// say that it is done, and the other dispatcher goes on.
func TestServe(t *testing.T) {
	c := newCluster(t)
	c.delegate()
	a := c.start(c.config(nil))
	a.ready()
	b := c.start(c.config(nil))
	b.ready()
	worker := c.client(c.token("worker", audience))
	for i := range 20 {
		c.object("object-" + strconv.Itoa(i))
	}
	seen := map[string]bool{}
	for len(seen) < 20 { // any dispatcher will do, and for what follows, too
		take := worker.take(a.URL())
		seen[take.Name] = true
		if code := worker.post(b.URL()+wire.PathDone, wire.DoneRequest{Token: take.Token}, nil); code != http.StatusNoContent {
			t.Errorf("done at another dispatcher: code %d", code)
		}
	}
	a.until("moved", func() string {
		_, metrics := a.get("/metrics")
		if !strings.Contains(metrics, `state="coming"} 0`) || !strings.Contains(metrics, `rota_members{rota="`+c.namespace+`/tier"} 2`) {
			return metrics
		}
		return ""
	})
	for i := range 20 {
		c.object("more-" + strconv.Itoa(i))
	}
	var held []wire.Take
	for range 20 {
		held = append(held, worker.take(b.URL()))
	}
	begun := time.Now()
	a.leave()
	a.until("leaving", func() string {
		if code, text := a.get("/readyz"); code == http.StatusOK || !strings.Contains(text, "it is leaving") {
			return fmt.Sprintf("%d %s", code, text)
		}
		return ""
	})
	if code, _ := a.get("/healthz"); code != http.StatusOK {
		t.Errorf("while it leaves, it looks stuck: %d", code)
	}
	for _, take := range held {
		if code := worker.post(a.URL()+wire.PathDone, wire.DoneRequest{Token: take.Token}, nil); code != http.StatusNoContent {
			t.Errorf("done while a dispatcher leaves: code %d", code)
		}
	}
	a.end()
	t.Logf("left after %v", time.Since(begun))
	if _, err := net.Dial("tcp", strings.TrimPrefix(a.URL(), "https://")); err == nil {
		t.Error("the port is still open")
	}
	c.object("final-object")
	for take := worker.take(b.URL()); take.Name != "final-object"; take = worker.take(b.URL()) {
		// One in eight is of a slot that was opened.
		if code := worker.post(b.URL()+wire.PathDone, wire.DoneRequest{Token: take.Token}, nil); code != http.StatusNoContent {
			t.Errorf("done: code %d", code)
		}
	}
	worker.refused(b.URL()+wire.PathDone, wire.DoneRequest{Token: "x"}, http.StatusBadRequest, wire.ProblemInvalid)
	b.until("all slots are worked on", func() string { // as the alerts see it
		_, metrics := b.get("/metrics")
		for _, state := range []string{"owned", "open", "all"} {
			if !strings.Contains(metrics, `rota_slots{rota="`+c.namespace+`/tier",state="`+state+`"} 256`) {
				return "not all slots are " + state
			}
		}
		return ""
	})
	_, metrics := b.get("/metrics")
	label := `rota="` + c.namespace + `/tier"`
	for _, want := range []string{
		`rota_dispatch_ready{kind="ConfigMap",` + label + `} `,
		`rota_dispatch_taken{kind="ConfigMap",` + label + `} 1`,
		`rota_dispatch_oldest_seconds{kind="ConfigMap",` + label + `} `,
		`rota_dispatch_takes_ended_total{how="expired",kind="ConfigMap",` + label + `} 0`,
		`rota_dispatch_wait_seconds_bucket{kind="ConfigMap",` + label + `,le="+Inf"} `,
		`rota_dispatch_take_seconds_count{kind="ConfigMap",` + label + `} `,
		`rota_dispatch_requests_total{code="204",path="/v1/done",` + label + `} `,
		`rota_dispatch_requests_under_way{path="/v1/take",` + label + `} 0`,
		`rota_dispatch_refused_total{problem="invalid",` + label + `} 1`,
		`rota_dispatch_reviews_total{outcome="ok",review="token",` + label + `} `,
		`rota_members{` + label + `} 1`, "rest_client_requests_total{", "go_goroutines ",
	} {
		if !strings.Contains(metrics, "\n"+want) {
			t.Errorf("no line %s", want)
		}
	}
	for _, name := range []string{"final-object", "object-1", "serviceaccount"} {
		if strings.Contains(metrics, name) {
			t.Errorf("the metrics name %s", name)
		}
	}
	takes, ended := sum(t, metrics, "rota_dispatch_takes_total"), sum(t, metrics, "rota_dispatch_takes_ended_total")
	if takes < 2 || takes != ended+1 || sum(t, metrics, "rota_dispatch_wait_seconds_count") != takes {
		t.Errorf("%v takes, %v have ended", takes, ended)
	}
}

// sum adds up a metric.
func sum(t *testing.T, metrics, name string) (total float64) {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if labels, ok := strings.CutPrefix(line, name+"{"); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(labels[strings.LastIndex(labels, "}")+1:]), 64)
			require.NoError(t, err)
			total += v
		}
	}
	return total
}

// TestMissingPermissions: a dispatcher that cannot review tokens is not ready, and ends with what to apply.
func TestMissingPermissions(t *testing.T) {
	c := newCluster(t)
	d := c.start(c.config(nil))
	d.until("not ready", func() string {
		if code, text := d.get("/readyz"); code == http.StatusOK || !strings.Contains(text, "tokenreviews") {
			return fmt.Sprintf("%d %s", code, text)
		}
		return ""
	})
	err := require.Receive(t, d.ended, time.Minute, "it does not end")
	var missing *permission.MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "kind: ClusterRoleBinding") {
		t.Errorf("error %v", err)
	}
}

// TestPermissions: who may take keys does so as fast as the limits say. A dispatcher that cannot let workers in any more
// is not ready, until it can.
func TestPermissions(t *testing.T) {
	c := newCluster(t)
	c.delegate()
	d := c.start(c.config(func(o *app.Config) { o.Limits = app.Limits{Rate: 0.1, Burst: 1} }))
	d.ready()
	take, ask := d.URL()+wire.PathTake, wire.TakeRequest{Worker: "w"}
	worker, stranger := c.client(c.token("worker", audience)), c.client(c.token("stranger", audience))
	if code := worker.post(take, ask, nil); code != http.StatusOK {
		t.Errorf("code %d", code)
	}
	worker.refused(take, ask, http.StatusTooManyRequests, wire.ProblemTooMany)
	detail := stranger.refused(take, ask, http.StatusForbidden, wire.ProblemForbidden)
	if !strings.Contains(detail, ":stranger may not take configmaps in namespace "+c.namespace) {
		t.Errorf("detail %q", detail)
	}
	require.NoError(t, c.RbacV1().ClusterRoleBindings().Delete(t.Context(), c.namespace, metav1.DeleteOptions{}))
	d.until("not ready", func() string {
		if code, text := d.get("/readyz"); code == http.StatusOK || !strings.Contains(text, "tokenreviews") {
			return fmt.Sprintf("%d %s", code, text)
		}
		return ""
	})
	c.delegate()
	d.ready()
}

// TestWrongToken: a token that other dispatchers would not accept is found at the start.
func TestWrongToken(t *testing.T) {
	c := newCluster(t)
	c.delegate()
	for _, x := range []struct{ name, token, want string }{
		{"audience", c.token("dispatcher"), "not valid for the audience"},
		{"user", c.token("worker", audience), "system:serviceaccount:" + c.namespace + ":worker, but this dispatcher talks"},
		{"missing", "", "tokenFile: open"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			if x.token != "" {
				c.file("token-"+x.name, []byte(x.token+"\n"))
			}
			d := c.start(c.config(func(o *app.Config) { o.TokenFile = filepath.Join(c.dir, "token-"+x.name) }))
			err := require.Receive(t, d.ended, time.Minute, "it does not end")
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("error %v, want %q", err, x.want)
			}
		})
	}
}

package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

const (
	namespace = "bench"
	tier      = "tier"
	// padding is how many bytes of data each object has.
	padding = 1024
	// writers create and change objects at a time.
	writers = 16
)

// cluster is a control plane with objects, dispatchers and workers.
type cluster struct {
	o       Options
	dir     string
	plane   *controlplane.ControlPlane
	config  *rest.Config
	client  *kubernetes.Clientset
	token   string // of workers
	file    string // with the dispatchers' token
	objects int
	started int
	serial  atomic.Int64
}

func open(ctx context.Context, o Options, dir string) (_ *cluster, err error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{Env: []string{stage.FewCollections}})
	if err != nil {
		return nil, err
	}
	c := &cluster{o: o, dir: dir, plane: plane, config: plane.Config(), file: filepath.Join(dir, "token")}
	c.config.QPS = -1
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return nil, err
	}
	if err := c.permit(ctx); err != nil {
		return nil, err
	}
	peer, err := c.newToken(ctx, "dispatcher")
	if err != nil {
		return nil, err
	}
	if c.token, err = c.newToken(ctx, "worker"); err != nil {
		return nil, err
	}
	return c, os.WriteFile(c.file, []byte(peer), 0o600)
}

func (c *cluster) close() error { return c.plane.Stop() }

// permit makes the namespace, and lets the workers take keys in it.
func (c *cluster) permit(ctx context.Context) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "take"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"take"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "take"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "take"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "worker"}},
	}, metav1.CreateOptions{})
	return err
}

// newToken makes a ServiceAccount and returns a token of it.
func (c *cluster) newToken(ctx context.Context, name string) (string, error) {
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := accounts.Create(ctx, account, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	review, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.Token, nil
}

func object(i int, serial int64) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "object-" + strconv.Itoa(i), Namespace: namespace, Labels: map[string]string{"bench": "yes"},
		},
		Data: map[string]string{"n": strconv.FormatInt(serial, 10), "padding": strings.Repeat("x", padding)},
	}
}

// grow creates objects until there are n.
func (c *cluster) grow(ctx context.Context, n int) error {
	next := atomic.Int64{}
	next.Store(int64(c.objects))
	errs := make([]error, writers)
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				_, err := c.client.CoreV1().ConfigMaps(namespace).Create(ctx, object(i, 0), metav1.CreateOptions{})
				if err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	group.Wait()
	c.objects = n
	return errors.Join(errs...)
}

// change updates an object and returns its version.
func (c *cluster) change(ctx context.Context, i int) (string, error) {
	out, err := c.client.CoreV1().ConfigMaps(namespace).Update(ctx, object(i, c.serial.Add(1)), metav1.UpdateOptions{})
	if err != nil {
		return "", err
	}
	return out.ResourceVersion, nil
}

// server is a dispatcher that runs.
type server struct {
	*process.Process
	url string
}

// start starts a dispatcher and waits until it can be asked.
func (c *cluster) start(ctx context.Context) (*server, error) {
	c.started++
	name := fmt.Sprintf("%s-%d", tier, c.started)
	command, err := process.Command(nil)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Options{
		Name: name, Command: command, Variable: EnvDispatcher, Answers: true, Log: filepath.Join(c.dir, name+".log"),
		Config: dispatcherConfig{
			Kubeconfig: c.plane.Kubeconfig(), Namespace: namespace, Name: tier, Pod: name, TokenFile: c.file,
			Self: "system:serviceaccount:" + namespace + ":dispatcher",
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	url, err := p.Ask(ctx, "", "serving")
	if err != nil {
		p.Kill()
		return nil, err
	}
	return &server{p, url}, nil
}

// figures asks a dispatcher what it has used.
func (s *server) figures(ctx context.Context) (f figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := s.Ask(ctx, "figures", "figures")
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal([]byte(text), &f)
}

// worker asks one dispatcher.
type worker struct {
	name, url, token string
	http             *http.Client
}

func (c *cluster) worker(s *server, n int) *worker {
	return &worker{"worker-" + strconv.Itoa(n), s.url, c.token, &http.Client{Transport: &http.Transport{}}}
}

func (w *worker) close() { w.http.CloseIdleConnections() }

// call sends a request, and reads its answer into out unless that is nil.
func (w *worker) call(ctx context.Context, path string, in, out any) error {
	method, body := http.MethodGet, io.Reader(nil)
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	r.Header.Set("Authorization", "Bearer "+w.token)
	answer, err := w.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %d: %s", path, answer.StatusCode, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// drain takes keys with several workers until none is left, and returns how many there were.
func (c *cluster) drain(ctx context.Context, s *server, workers, batch int) (int, error) {
	var count atomic.Int64
	errs := make([]error, workers)
	var group sync.WaitGroup
	for n := range workers {
		group.Go(func() {
			w := c.worker(s, n)
			defer w.close()
			for {
				var out wire.TakeResponse
				err := w.call(ctx, wire.PathTake, wire.TakeRequest{Worker: w.name, Max: batch, WaitSeconds: 2}, &out)
				if err != nil || len(out.Takes) == 0 {
					errs[n] = err
					return
				}
				for _, take := range out.Takes {
					if err := w.call(ctx, wire.PathDone, wire.DoneRequest{Token: take.Token}, nil); err != nil {
						errs[n] = err
						return
					}
				}
				count.Add(int64(len(out.Takes)))
			}
		})
	}
	group.Wait()
	return int(count.Load()), errors.Join(errs...)
}

// pending waits until a dispatcher has n keys.
func (c *cluster) pending(ctx context.Context, s *server, n int) error {
	w := c.worker(s, 0)
	defer w.close()
	return await.Until(ctx, 100*time.Millisecond, 5*time.Minute, func() string {
		var stats wire.Stats
		if err := w.call(ctx, wire.PathStats, nil, &stats); err != nil {
			return err.Error()
		}
		if len(stats.Kinds) != 1 || stats.Kinds[0].Ready+stats.Kinds[0].Delayed != n {
			return fmt.Sprintf("want %d keys: %+v", n, stats)
		}
		return ""
	})
}

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	dispatchers "github.com/rota-dev/rota/dispatch/client"
	"github.com/rota-dev/rota/dispatch/reconciler"
	"github.com/rota-dev/rota/internal/dispatch/app"
	"github.com/rota-dev/rota/test/rig"
)

const (
	// dispatchAccount is the ServiceAccount of all dispatchers and workers. It may do everything.
	dispatchAccount = "dispatch"
	// tokenSeconds is longer than any run.
	tokenSeconds = 24 * 60 * 60
)

// dispatch has a replica be a dispatcher, as `rota dispatch` is, and a worker that asks it.
func dispatch(ctx context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
	o.Scheme, o.NewClient, o.Metrics.BindAddress = rig.Scheme(), uncached, "0"
	mgr, err := ctrl.NewManager(cfg, o)
	if err != nil {
		return built{}, err
	}
	file := filepath.Join(c.Dir, c.Pod+".token")
	account, err := c.account(ctx, cfg, file)
	if err != nil {
		return built{}, fmt.Errorf("account of the dispatchers: %w", err)
	}
	kind := app.Kind{Kind: kinds[0].GroupKind().String()}
	for _, child := range kinds[1:] {
		kind.Owns = append(kind.Owns, child.GroupKind().String())
	}
	config := app.Config{
		Name: c.Name, Namespace: c.Namespace, TokenFile: file, Metrics: "127.0.0.1:0", Kinds: []app.Kind{kind},
		Server: app.Server{Listen: "127.0.0.1:0", Insecure: true}, Limits: app.Limits{Rate: 1e6},
	}
	if err := config.Check(); err != nil {
		return built{}, err
	}
	d, err := app.New(ctx, account, &config, rota.Identity{}, ctrl.Log)
	if err != nil {
		return built{}, err
	}
	add := func(_ context.Context, of rig.Controller, r reconcile.Reconciler) error {
		at, err := dispatchers.New(dispatchers.Options{URLs: []string{d.URL()}, TokenFile: file, Logger: mgr.GetLogger()})
		if err != nil {
			return err
		}
		worker, err := reconciler.New(dispatchers.Worker{
			Client: at, Name: c.Pod, Kinds: []string{kind.Kind}, Concurrency: of.Workers,
		}, r)
		if err != nil {
			return err
		}
		return mgr.Add(worker)
	}
	return built{Manager: mgr, status: d.Status, add: add}, mgr.Add(manager.RunnableFunc(d.Run))
}

// uncached makes a manager's client that reads from the API server.
func uncached(cfg *rest.Config, o client.Options) (client.Client, error) {
	o.Cache = nil
	return client.New(cfg, o)
}

// account makes the ServiceAccount if it is not there, writes a token for dispatchers into a file, and returns how to
// reach the API server as that account.
func (c *operatorConfig) account(ctx context.Context, cfg *rest.Config, file string) (*rest.Config, error) {
	admin, err := client.New(cfg, client.Options{Scheme: rig.Scheme()})
	if err != nil {
		return nil, err
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: dispatchAccount}}
	for _, obj := range []client.Object{sa.DeepCopy(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: dispatchAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: c.Namespace, Name: dispatchAccount}},
	}} {
		if err := client.IgnoreAlreadyExists(admin.Create(ctx, obj)); err != nil {
			return nil, err
		}
	}
	token := func(audiences ...string) (string, error) {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, ExpirationSeconds: new(int64(tokenSeconds)),
		}}
		err := admin.SubResource("token").Create(ctx, sa, request)
		return request.Status.Token, err
	}
	own, err := token("rota.dev/dispatch")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(own), 0o600); err != nil {
		return nil, err
	}
	account := rest.CopyConfig(cfg)
	account.CertData, account.CertFile, account.KeyData, account.KeyFile = nil, "", nil, ""
	account.BearerToken, err = token()
	return account, err
}

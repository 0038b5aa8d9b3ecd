package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
)

const (
	tierName      = "website"
	tierNamespace = "rota-dispatch-demo"
	// The ServiceAccounts of dispatchers and of workers.
	dispatcherAccount, workerAccount = "dispatcher", "worker"
	audience                         = "rota.dev/dispatch"
	serverName                       = "rota-dispatch." + tierNamespace + ".svc"
	// tokenLife is longer than a run.
	tokenLife = 3600
)

// Files that processes read. The first two are suffixes of file names that begin with the account's name.
const (
	apiToken      = "-api.token"
	dispatchToken = "-dispatch.token"
	apiCA         = "api-ca.crt"
	certFile      = "dispatch.crt"
	keyFile       = "dispatch.key"
)

// grant makes the ServiceAccounts, and gives them what they need.
func (e *engine) grant(ctx context.Context) error {
	operator, err := rig.RulesOf(config.Role)
	if err != nil {
		return err
	}
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	dispatchers := []rbacv1.PolicyRule{
		rule(webv1.GroupVersion.Group, "websites", "list", "watch"),
		rule(authenticationv1.GroupName, "tokenreviews", "create"),
		rule(authorizationv1.GroupName, "subjectaccessreviews", "create"),
	}
	workers := slices.Concat(operator, []rbacv1.PolicyRule{rule(webv1.GroupVersion.Group, "websites", "take")})
	subject := func(account string) rbacv1.Subject { return controlplane.Account(tierNamespace, account) }
	errs := []error{
		e.Cluster.Create(ctx, controlplane.Roles(tierNamespace, dispatcherAccount, subject(dispatcherAccount),
			permission.Rules(tierName)...)...),
	}
	for account, rules := range map[string][]rbacv1.PolicyRule{dispatcherAccount: dispatchers, workerAccount: workers} {
		errs = append(errs, e.Cluster.Create(ctx, serviceAccount(account)),
			e.Cluster.Create(ctx, controlplane.Roles("", tierNamespace+"-"+account, subject(account), rules...)...))
	}
	return errors.Join(errs...)
}

func serviceAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tierNamespace, Name: name}}
}

// authenticate writes the accounts' tokens, for the API server and for dispatchers, and the API server's authority.
func (e *engine) authenticate(ctx context.Context) error {
	for _, account := range []string{dispatcherAccount, workerAccount} {
		for file, audiences := range map[string][]string{apiToken: nil, dispatchToken: {audience}} {
			request := &authenticationv1.TokenRequest{
				Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To[int64](tokenLife)},
			}
			if err := e.Cluster.Client.SubResource("token").Create(ctx, serviceAccount(account), request); err != nil {
				return fmt.Errorf("token of ServiceAccount %s: %w", account, err)
			}
			if err := os.WriteFile(e.path(account+file), []byte(request.Status.Token), 0o600); err != nil {
				return err
			}
		}
	}
	if err := rest.LoadTLSFiles(e.Cluster.Config); err != nil {
		return err
	}
	return os.WriteFile(e.path(apiCA), e.Cluster.Config.CAData, 0o600)
}

// identity is how processes reach the API server as an account.
func (e *engine) identity(account string) rig.Identity {
	cfg := rest.AnonymousClientConfig(e.Cluster.Config)
	cfg.BearerTokenFile = e.path(account + apiToken)
	return rig.Identity{Config: cfg}
}

// certify writes a certificate for all dispatchers, with its authority.
func (e *engine) certify() error {
	chain, key, err := cert.GenerateSelfSignedCertKey(serverName, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(e.path(certFile), chain, 0o600), os.WriteFile(e.path(keyFile), key, 0o600))
}

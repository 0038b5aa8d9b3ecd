package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
)

const (
	tierName      = "website"
	tierNamespace = "rota-dispatch-demo"
	// Accounts are those of dispatchers and of workers.
	dispatcherAccount, workerAccount = "dispatcher", "worker"
	audience                         = "rota.dev/dispatch"
	serverName                       = "rota-dispatch." + tierNamespace + ".svc"
	// tokenLife is longer than a run.
	tokenLife = 3600
)

// cluster is the API server that the demo runs on.
type cluster struct {
	*rig.Cluster
	dir string
}

func openCluster(ctx context.Context, o *Options, dir string) (*cluster, error) {
	s, err := rig.Open(ctx, rig.Options{
		Name: tierNamespace, Kubeconfig: o.Kubeconfig, Dir: dir,
		ControlPlane: controlplane.Options{Env: []string{rig.FewCollections}},
	})
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("set up the demo: %w. Is another one running, or was one killed? Then `kubectl delete "+
			"namespace %s %s-sites`, and the ClusterRoles and ClusterRoleBindings %s-%s and -%s", err, tierNamespace,
			tierNamespace, tierNamespace, dispatcherAccount, workerAccount)
	}
	if err != nil {
		return nil, err
	}
	c := &cluster{s, dir}
	if err := errors.Join(c.grant(ctx), c.certify()); err != nil {
		return nil, errors.Join(err, c.Clear())
	}
	for _, account := range []string{dispatcherAccount, workerAccount} {
		if err := c.authenticate(ctx, account); err != nil {
			return nil, errors.Join(err, c.Clear())
		}
	}
	return c, nil
}

// grant makes the ServiceAccounts, and gives them what they need.
func (c *cluster) grant(ctx context.Context) error {
	text, _, _ := bytes.Cut(config.Role, []byte("\n---\n"))
	var operator rbacv1.ClusterRole
	if err := yaml.Unmarshal(text, &operator); err != nil {
		return fmt.Errorf("the operator's ClusterRole: %w", err)
	}
	websites := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{webv1.GroupVersion.Group}, Resources: []string{"websites"}, Verbs: verbs}
	}
	dispatchers := []rbacv1.PolicyRule{websites("list", "watch"), {
		APIGroups: []string{authenticationv1.GroupName}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"},
	}, {
		APIGroups: []string{authorizationv1.GroupName}, Resources: []string{"subjectaccessreviews"},
		Verbs: []string{"create"},
	}}
	workers := slices.Concat(operator.Rules, []rbacv1.PolicyRule{websites("take")})
	var errs []error
	for account, rules := range map[string][]rbacv1.PolicyRule{dispatcherAccount: dispatchers, workerAccount: workers} {
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: c.Namespace, Name: account}
		errs = append(errs, c.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: account},
		}), c.Create(ctx, rig.Grant(tierNamespace+"-"+account, "", rules, subject)...))
		if account == dispatcherAccount {
			errs = append(errs, c.Create(ctx, rig.Grant(account, c.Namespace, permission.Rules(tierName), subject)...))
		}
	}
	return errors.Join(errs...)
}

// Files that processes read; those of an account follow its name.
const (
	apiToken      = "-api.token"
	dispatchToken = "-dispatch.token"
	kubeconfig    = ".kubeconfig"
	apiCA         = "api-ca.crt"
	certFile      = "dispatch.crt"
	keyFile       = "dispatch.key"
)

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

// authenticate writes an account's tokens, for the API server and for dispatchers, and its kubeconfig.
func (c *cluster) authenticate(ctx context.Context, account string) error {
	for file, audiences := range map[string][]string{apiToken: nil, dispatchToken: {audience}} {
		life := int64(tokenLife)
		request := &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &life},
		}
		owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: account}}
		if err := c.Client.SubResource("token").Create(ctx, owner, request); err != nil {
			return fmt.Errorf("token of ServiceAccount %s: %w", account, err)
		}
		if err := os.WriteFile(c.path(account+file), []byte(request.Status.Token), 0o600); err != nil {
			return err
		}
	}
	// Which is in a file already, or not.
	ca, from := c.Config.CAData, c.Config
	if len(ca) == 0 && from.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(from.CAFile); err != nil {
			return err
		}
	}
	if err := os.WriteFile(c.path(apiCA), ca, 0o600); err != nil {
		return err
	}
	k := api.NewConfig()
	k.Clusters[account] = &api.Cluster{
		Server: from.Host, CertificateAuthorityData: ca, InsecureSkipTLSVerify: from.Insecure,
		TLSServerName: from.ServerName,
	}
	k.AuthInfos[account] = &api.AuthInfo{TokenFile: c.path(account + apiToken)}
	k.Contexts[account] = &api.Context{Cluster: account, AuthInfo: account, Namespace: c.Namespace}
	k.CurrentContext = account
	return clientcmd.WriteToFile(*k, c.path(account+kubeconfig))
}

// certify writes a certificate for all dispatchers, with its authority.
func (c *cluster) certify() error {
	chain, key, err := cert.GenerateSelfSignedCertKey(serverName, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(c.path(certFile), chain, 0o600), os.WriteFile(c.path(keyFile), key, 0o600))
}

// restConfig is what a process acts with.
func restConfig(path string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	cfg.QPS = -1
	return cfg, nil
}

package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
)

const (
	// Name and Namespace are the rota's, SitesNamespace is the Websites'.
	Name           = "website"
	Namespace      = "rota-demo"
	SitesNamespace = Namespace + "-sites"
	// Each replica is a user of its own, so that the audit log tells who wrote.
	userPrefix = "rota-demo:"
	userGroup  = "rota-demo:members"
)

// podOf returns the replica that has a user.
func podOf(user string) (string, bool) { return strings.CutPrefix(user, userPrefix) }

// cluster is the API server that the demo runs on.
type cluster struct {
	*rig.Cluster
	dir string
}

func openCluster(ctx context.Context, o *Options, dir string) (*cluster, error) {
	s, err := rig.Open(ctx, rig.Options{
		Name: Namespace, Kubeconfig: o.Kubeconfig, AuditLogs: o.AuditLogs, Dir: dir,
		ControlPlane: controlplane.Options{Audit: true, Env: []string{rig.FewCollections}},
	})
	if err == nil {
		if err = grant(ctx, s, o.Delivery > sharding.Filter); err != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("set up the demo: %w. Is another one running, or was one killed? Then `kubectl delete "+
			"namespace %s %s`, and the ClusterRole and ClusterRoleBinding %s", err, Namespace, SitesNamespace, Namespace)
	}
	if err != nil {
		return nil, err
	}
	return &cluster{Cluster: s, dir: dir}, nil
}

// grant gives the replicas what they need; labels says that they label objects.
func grant(ctx context.Context, c *rig.Cluster, labels bool) error {
	rules, err := rulesOf(config.Role)
	if labels && err == nil {
		var more []rbacv1.PolicyRule
		more, err = rulesOf(config.LabelRole)
		rules = append(rules, more...)
	}
	if err != nil {
		return err
	}
	members := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: userGroup}
	return errors.Join(
		c.Create(ctx, rig.Grant(Namespace, "", rules, members)...),
		c.Create(ctx, rig.Grant(Namespace, Namespace, permission.Rules(Name), members)...))
}

// rulesOf returns the rules of the ClusterRole that a manifest begins with.
func rulesOf(manifest []byte) ([]rbacv1.PolicyRule, error) {
	text, _, _ := bytes.Cut(manifest, []byte("\n---\n"))
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal(text, &role); err != nil {
		return nil, fmt.Errorf("a ClusterRole's manifest: %w", err)
	}
	return role.Rules, nil
}

// kubeconfig writes a kubeconfig with which a replica acts as a user of its own, and returns its path.
func (c *cluster) kubeconfig(pod string) (string, error) {
	const name = "demo"
	path, from := filepath.Join(c.dir, pod+".kubeconfig"), c.Config
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{
		Server: from.Host, CertificateAuthority: from.CAFile, CertificateAuthorityData: from.CAData,
		InsecureSkipTLSVerify: from.Insecure, TLSServerName: from.ServerName,
	}
	k.AuthInfos[name] = &api.AuthInfo{
		ClientCertificate: from.CertFile, ClientCertificateData: from.CertData,
		ClientKey: from.KeyFile, ClientKeyData: from.KeyData,
		Token: from.BearerToken, TokenFile: from.BearerTokenFile, Username: from.Username, Password: from.Password,
		Exec: from.ExecProvider, AuthProvider: from.AuthProvider,
		Impersonate: userPrefix + pod, ImpersonateGroups: []string{userGroup},
	}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return "", fmt.Errorf("write the kubeconfig of %s: %w", pod, err)
	}
	return path, nil
}

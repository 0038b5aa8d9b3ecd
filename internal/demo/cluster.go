package demo

import (
	"bytes"
	"context"
	_ "embed" // the audit policy
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/delivery"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/permission"
)

const (
	rotaName       = "website"
	rotaNamespace  = "rota-demo"
	sitesNamespace = "rota-demo-sites"
	// Each replica is a user of its own, so that the audit log tells who wrote.
	userPrefix = "rota-demo:"
	userGroup  = "rota-demo:members"
)

// serverEnv gives the servers memory for time: at their usual setting they spend a quarter of theirs on garbage, on the
// machine that the replicas have to share with them here.
var serverEnv = []string{"GOGC=400"}

//go:embed audit-policy.yaml
var auditPolicy []byte

// podOf returns the replica whose user it is.
func podOf(user string) (string, bool) { return strings.CutPrefix(user, userPrefix) }

// cluster is the API server that the demo runs on, and what the demo put there.
type cluster struct {
	config *rest.Config
	client client.Client
	plane  *controlplane.ControlPlane // nil: somebody's own
	audit  []string
	dir    string
	labels bool // members write labels
	made   []client.Object
}

// openCluster starts or finds the API server. Close it also after an error.
func openCluster(ctx context.Context, o *Options, dir string) (*cluster, error) {
	c := &cluster{dir: dir, labels: o.Delivery > delivery.Filter}
	if o.Kubeconfig == "" {
		policy := filepath.Join(dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, auditPolicy, 0o600); err != nil {
			return c, err
		}
		plane, err := controlplane.Start(ctx, controlplane.Options{AuditPolicy: policy, Env: serverEnv})
		if err != nil {
			return c, err
		}
		c.plane, c.config, c.audit = plane, plane.Config(), plane.AuditLogs()
	} else {
		config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
		if err != nil {
			return c, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
		}
		c.config = config
		c.config.QPS = -1
		if o.AuditLog != "" {
			c.audit = []string{o.AuditLog}
		}
	}
	c.config.UserAgent = "rota-demo"
	c.config.WarningHandler = rest.NoWarnings{} // its certificates are none
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), webv1.AddToScheme(scheme)); err != nil {
		return c, err
	}
	if err := c.install(ctx, scheme); err != nil {
		return c, err
	}
	return c, nil
}

func (c *cluster) install(ctx context.Context, scheme *runtime.Scheme) error {
	direct, err := client.New(c.config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	c.client = direct
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal(bytes.TrimPrefix(config.CRD, []byte("---\n")), &crd.Object); err != nil {
		return fmt.Errorf("the CRD's manifest: %w", err)
	}
	there := crd.DeepCopy()
	switch err := c.client.Get(ctx, client.ObjectKeyFromObject(there), there); {
	case err == nil: // somebody's: it stays
	case apierrors.IsNotFound(err):
		c.made = append(c.made, crd.DeepCopy())
	default:
		return fmt.Errorf("look for the CRD of Websites: %w", err)
	}
	if err := controlplane.InstallCRDs(ctx, c.config, config.CRD); err != nil {
		return err
	}
	role, labels := rbacv1.ClusterRole{}, rbacv1.ClusterRole{}
	for manifest, role := range map[*[]byte]*rbacv1.ClusterRole{&config.Role: &role, &config.LabelRole: &labels} {
		text, _, _ := bytes.Cut(*manifest, []byte("\n---\n"))
		if err := yaml.Unmarshal(text, role); err != nil {
			return fmt.Errorf("a ClusterRole's manifest: %w", err)
		}
	}
	role.Name = rotaNamespace
	if c.labels {
		role.Rules = append(role.Rules, labels.Rules...)
	}
	members := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: userGroup}}
	name, local := metav1.ObjectMeta{Name: rotaNamespace}, metav1.ObjectMeta{Name: rotaNamespace, Namespace: rotaNamespace}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: name},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sitesNamespace}},
		&role,
		&rbacv1.ClusterRoleBinding{ObjectMeta: name, Subjects: members, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rotaNamespace}},
		&rbacv1.Role{ObjectMeta: local, Rules: permission.Rules(rotaName)},
		&rbacv1.RoleBinding{ObjectMeta: local, Subjects: members, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: rotaNamespace}},
	} {
		if err := c.client.Create(ctx, obj); err != nil {
			return fmt.Errorf("set up the demo (is another one running, or was one killed? then `kubectl delete namespace %s %s`, and the ClusterRole and ClusterRoleBinding %s): %w",
				rotaNamespace, sitesNamespace, rotaNamespace, err)
		}
		if obj.GetNamespace() == "" {
			c.made = append(c.made, obj)
		}
	}
	return nil
}

// kubeconfig writes a kubeconfig with which a replica acts as a user of its own, and returns its path.
func (c *cluster) kubeconfig(pod string) (string, error) {
	path, user := filepath.Join(c.dir, pod+".kubeconfig"), userPrefix+pod
	if c.plane != nil {
		return path, c.plane.WriteUserKubeconfig(path, user, userGroup)
	}
	const name = "demo"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{Server: c.config.Host, CertificateAuthority: c.config.CAFile, CertificateAuthorityData: c.config.CAData,
		InsecureSkipTLSVerify: c.config.Insecure, TLSServerName: c.config.ServerName}
	k.AuthInfos[name] = &api.AuthInfo{
		ClientCertificate: c.config.CertFile, ClientCertificateData: c.config.CertData, ClientKey: c.config.KeyFile, ClientKeyData: c.config.KeyData,
		Token: c.config.BearerToken, TokenFile: c.config.BearerTokenFile, Username: c.config.Username, Password: c.config.Password,
		Exec: c.config.ExecProvider, AuthProvider: c.config.AuthProvider,
		Impersonate: user, ImpersonateGroups: []string{userGroup},
	}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return "", fmt.Errorf("write the kubeconfig of %s: %w", pod, err)
	}
	return path, nil
}

// close stops the control plane, or removes what the demo put into somebody's cluster.
func (c *cluster) close() error {
	if c.plane != nil {
		return c.plane.Stop()
	}
	if c.client == nil || len(c.made) == 0 {
		return nil
	}
	// The run's context may be what ended.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := []error{c.release(ctx)}
	for i := len(c.made) - 1; i >= 0; i-- {
		errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, c.made[i])))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	return nil
}

// release deletes all Websites and takes their finalizers: no operator is left to do it.
func (c *cluster) release(ctx context.Context) error {
	if err := c.client.DeleteAllOf(ctx, &webv1.Website{}, client.InNamespace(sitesNamespace)); err != nil {
		return client.IgnoreNotFound(err)
	}
	var sites webv1.WebsiteList
	if err := c.client.List(ctx, &sites, client.InNamespace(sitesNamespace)); err != nil {
		return err
	}
	for i := range sites.Items {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := c.client.Patch(ctx, &sites.Items[i], patch); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// saveAudit copies the audit logs into the demo's folder: the control plane takes them with it.
func (c *cluster) saveAudit() error {
	var errs []error
	for _, path := range c.audit {
		if c.plane != nil {
			errs = append(errs, os.Link(path, filepath.Join(c.dir, filepath.Base(path))))
		}
	}
	return errors.Join(errs...)
}

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/oracle"
)

const (
	rotaNamespace  = "rota-chaos"
	sitesNamespace = rotaNamespace + "-sites"
	// podUser, followed by ACCOUNT/POD, is the user of a member with a token for a Pod. The ServiceAccount has the name
	// of the rota: a fence is for the members of one.
	podUser = "system:serviceaccount:" + rotaNamespace + ":"
	// requestLimit bounds a request of the campaign itself.
	requestLimit = 10 * time.Second
	// servers is the number of API servers. Members use the first, the campaign the second one.
	servers = 2
)

var (
	websites = webv1.GroupVersion.WithResource("websites")
	// dutyMaps are what duties write to.
	dutyMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// podOf returns the Pod that has a user.
func podOf(user string) (string, bool) {
	account, ok := strings.CutPrefix(user, podUser)
	if !ok {
		return "", false
	}
	_, pod, ok := strings.Cut(account, "/")
	return pod, ok
}

// userOf is the inverse of podOf, for a rota.
func userOf(rota, pod string) string { return podUser + rota + "/" + pod }

// cluster is a control plane and what the campaign put there.
type cluster struct {
	*rig.Cluster
	// client has a limit for each request; Client, which watches, has none.
	client client.WithWatch
}

func openCluster(ctx context.Context, dir string) (*cluster, error) {
	s, err := rig.Open(ctx, rig.Options{Name: rotaNamespace, Dir: dir, ControlPlane: controlplane.Options{
		Audit: true, APIServers: servers, Env: []string{rig.FewCollections},
	}})
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: s}
	cfg := rest.CopyConfig(s.Config)
	cfg.Timeout = requestLimit
	if c.client, err = client.NewWithWatch(cfg, client.Options{Scheme: s.Client.Scheme()}); err == nil {
		err = s.Create(ctx, accounts()...)
	}
	for _, name := range dutyNames {
		if err == nil {
			err = s.Create(ctx, dutyObject(name))
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return c, nil
}

// accounts returns a ServiceAccount for each rota, with what its members need.
func accounts() (out []client.Object) {
	sites := []rbacv1.PolicyRule{{
		APIGroups: []string{websites.Group}, Resources: []string{websites.Resource, websites.Resource + "/status"},
		Verbs: []string{"get", "list", "watch", "patch"},
	}, {
		APIGroups: []string{""}, Resources: []string{dutyMaps.Resource}, Verbs: []string{"get", "list", "watch", "patch"},
	}}
	for _, f := range forms {
		members := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: rotaNamespace, Name: f.rota}
		out = append(out, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: f.rota, Namespace: rotaNamespace}})
		out = append(out, rig.Grant(f.rota, rotaNamespace, permission.Rules(f.rota), members)...)
		out = append(out, rig.Grant(f.rota, sitesNamespace, sites, members)...)
	}
	return out
}

// identity makes a Pod object of a rota's operator, which nothing runs, and returns its UID and a token that names it.
func (c *cluster) identity(ctx context.Context, rota, name string) (types.UID, string, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: rotaNamespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: rota, Containers: []corev1.Container{{Name: "manager", Image: "none"}},
		},
	}
	if err := c.client.Create(ctx, pod); err != nil {
		return "", "", fmt.Errorf("make Pod %s: %w", name, err)
	}
	bound := &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}
	token, err := c.token(ctx, rota, bound)
	return pod.UID, token, err
}

func (c *cluster) token(
	ctx context.Context, rota string, bound *authenticationv1.BoundObjectReference,
) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: rota, Namespace: rotaNamespace}}
	if err := c.client.SubResource("token").Create(ctx, sa, request); err != nil {
		return "", fmt.Errorf("ask for a token: %w", err)
	}
	return request.Status.Token, nil
}

// fence installs the fence of a rota, and returns when every API server has it. The rota's table must exist.
func (c *cluster) fence(ctx context.Context, rota string) error {
	o := fence.Options{
		Rota:           types.NamespacedName{Namespace: rotaNamespace, Name: rota},
		ServiceAccount: types.NamespacedName{Namespace: rotaNamespace, Name: rota},
		Resources:      []schema.GroupResource{websites.GroupResource(), dutyMaps.GroupResource()},
	}
	if err := fence.Apply(ctx, c.Plane.Config(), o); err != nil {
		return err
	}
	token, err := c.token(ctx, rota, nil) // of no Pod, and so no member
	if err != nil {
		return err
	}
	for i := range servers {
		cfg := rest.AnonymousClientConfig(c.Plane.ConfigFor(i))
		cfg.BearerToken = token
		nobody, err := client.New(cfg, client.Options{Scheme: c.client.Scheme()})
		if err != nil {
			return err
		}
		err = await.Until(ctx, 20*time.Millisecond, 30*time.Second, func() string {
			var some webv1.WebsiteList // the load deletes and replaces them
			err := c.client.List(ctx, &some, client.InNamespace(sitesNamespace), client.Limit(1))
			if err != nil || len(some.Items) == 0 {
				return fmt.Sprintf("no Website to try the fence with: %v", err)
			}
			probe := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"probe":"x"}}}`))
			err = nobody.Patch(ctx, &some.Items[0], probe, client.DryRunAll)
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), o.ObjectName()) {
				return ""
			}
			return fmt.Sprintf("API server %d has no fence: %v", i, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tableObject returns the ConfigMap that holds a rota's table.
func (c *cluster) tableObject(ctx context.Context, rota string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	err := c.client.Get(ctx, types.NamespacedName{Namespace: rotaNamespace, Name: rota}, cm)
	return cm, err
}

// table returns a rota's table; nil: there is none.
func (c *cluster) table(ctx context.Context, rota string) (*table.Table, error) {
	cm, err := c.tableObject(ctx, rota)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return table.Decode(cm.Data)
}

// writer returns the Pod that wrote the status of a Website.
func (c *cluster) writer(ctx context.Context, name types.NamespacedName) (string, error) {
	var site webv1.Website
	err := c.client.Get(ctx, name, &site)
	return podOfProcess(oracle.Writer(site.Status.Checksum)), err
}

// left returns the names of the Leases of a rota, and of those in which its members report. Those whose Lease is gone
// it deletes, in place of the garbage collector, which does not run here.
func (c *cluster) left(ctx context.Context, rota string) (leases, reports []string, err error) {
	var told, list coordinationv1.LeaseList
	in := client.InNamespace(rotaNamespace)
	if err := c.client.List(ctx, &told, in, client.MatchingLabels{names.LabelCoverage: rota}); err != nil {
		return nil, nil, err
	}
	if err := c.client.List(ctx, &list, in, client.MatchingLabels{names.LabelRota: rota}); err != nil {
		return nil, nil, err
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		leases = append(leases, list.Items[i].Name)
		there[list.Items[i].UID] = true
	}
	for i := range told.Items {
		report := &told.Items[i]
		if owners := report.OwnerReferences; len(owners) != 1 || owners[0].Kind != "Lease" || there[owners[0].UID] {
			reports = append(reports, report.Name)
		} else if err := c.client.Delete(ctx, report); client.IgnoreNotFound(err) != nil {
			return nil, nil, err
		}
	}
	return leases, reports, nil
}

// compact has etcd forget all versions but the present ones, so that who follows from an older one is answered 410.
func (c *cluster) compact(ctx context.Context) error {
	var header struct {
		Header struct {
			Revision json.Number `json:"revision"`
		} `json:"header"`
	}
	if err := c.etcd(ctx, "/v3/kv/range", map[string]any{"key": []byte("x")}, &header); err != nil {
		return err
	}
	request := map[string]any{"revision": header.Header.Revision.String(), "physical": true}
	return c.etcd(ctx, "/v3/kv/compaction", request, &struct{}{})
}

func (c *cluster) etcd(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Plane.Etcd()[0]+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s: %s", path, resp.Status, text)
	}
	return json.Unmarshal(text, out)
}

package rig

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
)

var (
	websites = webv1.GroupVersion.WithResource("websites")
	// dutyMaps are what duties write to.
	dutyMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// accounts are the ServiceAccounts of rotas: one for each, of its name, since a fence is for the members of one rota.
// The user of a replica is podUser ACCOUNT/POD: its token is bound to a Pod.
type accounts struct {
	*Cluster
	client client.Client
}

func (a accounts) podUser() string { return "system:serviceaccount:" + a.Namespace + ":" }

// podOf returns the Pod that has a user.
func (a accounts) podOf(user string) (string, bool) {
	account, ok := strings.CutPrefix(user, a.podUser())
	if !ok {
		return "", false
	}
	_, pod, ok := strings.Cut(account, "/")
	return pod, ok
}

// userOf is the inverse of podOf, for a rota.
func (a accounts) userOf(rota, pod string) string { return a.podUser() + rota + "/" + pod }

// create makes the account of a rota, with what its members need.
func (a accounts) create(ctx context.Context, rota string) error {
	sites := []rbacv1.PolicyRule{{
		APIGroups: []string{websites.Group}, Resources: []string{websites.Resource, websites.Resource + "/status"},
		Verbs: []string{"get", "list", "watch", "patch"},
	}, {
		APIGroups: []string{""}, Resources: []string{dutyMaps.Resource}, Verbs: []string{"get", "list", "watch", "patch"},
	}}
	members := controlplane.Account(a.Namespace, rota)
	return errors.Join(
		a.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: rota, Namespace: a.Namespace}}),
		a.Create(ctx, controlplane.Roles(a.Namespace, rota, members, permission.Rules(rota)...)...),
		a.Create(ctx, controlplane.Roles(a.Sites, rota, members, sites...)...))
}

// identify makes a Pod object, which nothing runs, and puts a proxy before the API servers.
func (a accounts) identify(ctx context.Context, rota, name string) (Identity, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.Namespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: rota, Containers: []corev1.Container{{Name: "manager", Image: "none"}},
		},
	}
	if err := a.client.Create(ctx, pod); err != nil {
		return Identity{}, fmt.Errorf("make Pod %s: %w", name, err)
	}
	bound := &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: pod.UID}
	token, err := a.token(ctx, rota, bound)
	if err != nil {
		return Identity{}, err
	}
	var upstreams []*rest.Config
	for i := range a.Plane.APIServers() {
		upstreams = append(upstreams, a.Plane.ConfigFor(i))
	}
	number, _ := strconv.ParseUint(strings.TrimPrefix(name, "web-"), 10, 64)
	id, err := Through(number, token, upstreams...)
	id.UID = string(pod.UID)
	return id, err
}

func (a accounts) token(
	ctx context.Context, rota string, bound *authenticationv1.BoundObjectReference,
) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: rota, Namespace: a.Namespace}}
	if err := a.client.SubResource("token").Create(ctx, sa, request); err != nil {
		return "", fmt.Errorf("ask for a token: %w", err)
	}
	return request.Status.Token, nil
}

// fence installs the fence of a rota, and returns when every API server has it. The rota's table must exist.
func (a accounts) fence(ctx context.Context, rota string) error {
	o := fence.Options{
		Rota:           types.NamespacedName{Namespace: a.Namespace, Name: rota},
		ServiceAccount: types.NamespacedName{Namespace: a.Namespace, Name: rota},
		Resources:      []schema.GroupResource{websites.GroupResource(), dutyMaps.GroupResource()},
	}
	if err := fence.Apply(ctx, a.Plane.Config(), o); err != nil {
		return err
	}
	token, err := a.token(ctx, rota, nil) // of no Pod, and so no member
	if err != nil {
		return err
	}
	for i := range a.Plane.APIServers() {
		cfg := rest.AnonymousClientConfig(a.Plane.ConfigFor(i))
		cfg.BearerToken = token
		outsider, err := client.New(cfg, client.Options{Scheme: a.client.Scheme()})
		if err != nil {
			return err
		}
		err = await.Until(ctx, 20*time.Millisecond, 30*time.Second, func() string {
			var some webv1.WebsiteList // the load deletes and replaces them
			err := a.client.List(ctx, &some, client.InNamespace(a.Sites), client.Limit(1))
			if err != nil || len(some.Items) == 0 {
				return fmt.Sprintf("no Website to try the fence with: %v", err)
			}
			probe := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"probe":"x"}}}`))
			err = outsider.Patch(ctx, &some.Items[0], probe, client.DryRunAll)
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

package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
)

// Users gives members what the operator with all its children needs, and returns how a replica reaches the API server:
// it acts as a user of its own, by impersonation, so that the audit log has the writer. Unlike accounts, users need no
// Pod objects, which somebody's cluster would run. With labels, members may label objects.
func (c *Cluster) Users(ctx context.Context, rota string, labels bool) (
	identify func(context.Context, string) (Identity, error), err error,
) {
	rules, err := RulesOf(config.Role)
	if err != nil {
		return nil, err
	}
	if labels {
		more, err := RulesOf(config.LabelRole)
		if err != nil {
			return nil, err
		}
		rules = append(rules, more...)
	}
	rules = append(rules, rbacv1.PolicyRule{ // for duties
		APIGroups: []string{dutyMaps.Group}, Resources: []string{dutyMaps.Resource}, Verbs: []string{"patch"},
	})
	members := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: c.Namespace + ":members"}
	errs := []error{
		c.Create(ctx, controlplane.Roles("", c.Namespace, members, rules...)...),
		c.Create(ctx, controlplane.Roles(c.Namespace, c.Namespace, members, permission.Rules(rota)...)...),
	}
	for _, name := range DutyNames {
		errs = append(errs, c.Create(ctx, dutyObject(c.Sites, name)))
	}
	return func(_ context.Context, pod string) (Identity, error) {
		cfg := rest.CopyConfig(c.Config)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: c.Namespace + ":" + pod, Groups: []string{members.Name}}
		return Identity{Config: cfg}, nil
	}, errors.Join(errs...)
}

// PodOfUser returns the Pod that has a user of Users.
func (c *Cluster) PodOfUser(user string) (string, bool) {
	return strings.CutPrefix(user, c.Namespace+":")
}

// RulesOf returns the rules of the ClusterRole that a manifest begins with.
func RulesOf(manifest []byte) ([]rbacv1.PolicyRule, error) {
	text, _, _ := bytes.Cut(manifest, []byte("\n---\n"))
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal(text, &role); err != nil {
		return nil, fmt.Errorf("a ClusterRole's manifest: %w", err)
	}
	return role.Rules, nil
}

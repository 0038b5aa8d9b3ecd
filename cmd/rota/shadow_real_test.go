package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// startShadow starts a shadow of rota web in w's namespace, for Secrets, with the permissions of a ServiceAccount.
func (w *written) startShadow(t *testing.T, pod string) {
	t.Helper()
	cfg := w.plane.Config()
	cfg.Impersonate.UserName = "system:serviceaccount:" + w.namespace + ":" + account
	shadow, err := rota.NewShadow(cfg, rota.Options{Name: w.name, Namespace: w.namespace, Identity: rota.Identity{Pod: pod},
		LabelNamespaces: []string{w.namespace}, ScrubPeriod: time.Second, Logger: logr.Discard(),
		LeaseDuration: 6 * time.Second}, schema.GroupKind{Kind: "Secret"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- shadow.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// All commands say that a shadow is one, and none takes it for a rota that is broken. The permissions that the manual
// names are enough.
func TestCommandsOnAShadow(t *testing.T) {
	t.Parallel()
	w := newWritten(t)
	rules := append(permission.Rules(w.name+"-shadow"),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
	w.plane.MakeAccount(t, w.namespace, account, rules...)
	for i := range 20 {
		if _, err := w.client.CoreV1().Secrets(w.namespace).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("site-%d", i)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.startShadow(t, "web-0")
	w.startShadow(t, "web-1")
	run := func(args ...string) (code exitCode, text string) {
		args = append([]string{"rota"}, append(args, "-n", w.namespace, "--kubeconfig", controlplane.For(t).Kubeconfig())...)
		code, out, errs := runCommand(t.Context(), args...)
		return code, out + errs
	}
	var text string
	if err := await.Until(t.Context(), 200*time.Millisecond, time.Minute, func() string {
		_, text = run("status", "web-shadow")
		if strings.Contains(text, "2 members") && strings.Count(text, " 128 ") >= 2 &&
			strings.Contains(strings.Join(strings.Fields(text), " "), "all of Secret 20 ") && !strings.Contains(text, "moving:") {
			return ""
		}
		return "not two shadows with all Secrets:\n" + text
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SHADOW: the members do no work", "WOULD HAVE", "Shadow\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("status: no %q in\n%s", want, text)
		}
	}
	for _, c := range []struct {
		args string
		code exitCode
		want []string
		not  []string
	}{
		{"check web-shadow", 0, []string{"SHADOW: the members do no work"}, []string{"× ", "FenceMissing", "fence"}},
		{"who secret/site-7 --rota web-shadow", -1, []string{"SHADOW: web-", "would work on"}, nil},
		{"rebalance web-shadow --dry-run --replicas 4", 0, []string{"64"}, []string{"about 0 objects"}},
		{"verify web-shadow", exitUsage, []string{"is a shadow"}, nil},
		{"status -A", 0, []string{"SHADOW: does no work"}, nil},
	} {
		code, text := run(strings.Fields(c.args)...)
		t.Logf("%s: %d\n%s", c.args, code, text)
		if c.code >= 0 && code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.args, code, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", c.args, want, text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s: %q in\n%s", c.args, not, text)
			}
		}
	}
}

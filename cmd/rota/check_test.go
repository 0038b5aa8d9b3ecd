package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/check"
	"github.com/rota-dev/rota/internal/cli/serving"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/permission"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// account is the ServiceAccount of the operator in these tests.
const account = "operator"

// checked is a rota in which all is well: its operator may do what it has to, and a fence stands. It shards ConfigMaps, on
// which its operator has these verbs beside list and watch.
func checked(t *testing.T, setup map[string]string, verbs ...string) *written {
	t.Helper()
	tab := halves()
	for i := range tab.Members {
		tab.Members[i].PodUID = "uid-of-" + tab.Members[i].ID
	}
	w := writeRota(t, tab)
	for _, m := range tab.Members {
		w.tell(t, tab, m.ID, setup)
	}
	w.plane.MakeAccount(t, w.namespace, account, permission.Rules(w.name)...)
	w.plane.Grant(t, "", w.namespace, controlplane.Account(w.namespace, account), rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: append(verbs, "get", "list", "watch"),
	})
	require.NoError(t, fence.Apply(t.Context(), w.plane.Config(), w.fence()))
	cfg := controlplane.For(t).Config()
	cfg.Impersonate.UserName = "system:serviceaccount:" + w.namespace + ":" + account
	granted(t, cfg, append(permission.Needs(w.namespace, permission.Rules(w.name)), permission.Error{Resource: "configmaps", Verb: "list"})...)
	return w
}

// granted waits until the API server knows of Roles that give these permissions.
func granted(t *testing.T, cfg *rest.Config, needs ...permission.Error) {
	t.Helper()
	err := await.Until(t.Context(), 100*time.Millisecond, time.Minute, func() string {
		denied, err := permission.Denied(t.Context(), cfg, nil, needs)
		if err != nil || len(denied) > 0 {
			return fmt.Sprint(err, denied)
		}
		return ""
	})
	require.NoError(t, err)
}

func (w *written) fence() fence.Options {
	return fence.Options{
		Rota:           types.NamespacedName{Namespace: w.namespace, Name: w.name},
		ServiceAccount: types.NamespacedName{Namespace: w.namespace, Name: account},
		Resources:      []schema.GroupResource{{Resource: "configmaps"}},
	}
}

// tell has a member report that it shards ConfigMaps, with these settings beside the usual ones.
func (w *written) tell(t *testing.T, tab *table.Table, id string, setup map[string]string) {
	t.Helper()
	lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), names.Lease(w.name, id), metav1.GetOptions{})
	require.NoError(t, err)
	r := &coverage.Report{
		Member: id, Serial: 2, Open: tab.Owned(id), Digests: coverage.Digests{{Kind: "ConfigMap"}: map[slot.Slot]sharding.Digest{}},
		Setup: map[string]string{coverage.SettingLease: "15s", coverage.SettingFence: "2.5s", coverage.SettingDelivery: "Filter"},
	}
	maps.Copy(r.Setup, setup)
	w.report(t, r, lease)
}

// check runs `rota check` for the operator's ServiceAccount.
func (w *written) check(t *testing.T, more string, kubeconfig ...string) (code exitCode, out, errOut string) {
	t.Helper()
	return w.rota(t, "check web --service-account "+w.namespace+"/"+account+" "+more, kubeconfig...)
}

// expect waits until a finding is there as a line with this sign and text, and the words of its cure follow. API servers
// learn of changed Roles and policies a moment later.
func expect(t *testing.T, w *written, code exitCode, sign, section string, words ...string) {
	t.Helper()
	words = append(words, "docs/troubleshooting.md#"+strings.ToLower(section))
	words[0] = sign + " " + words[0]
	err := await.Until(t.Context(), 200*time.Millisecond, time.Minute, func() string {
		got, out, errOut := w.check(t, "")
		rest, found := out, got == code
		for _, word := range words {
			_, after, ok := strings.Cut(rest, word)
			rest, found = after, found && ok
		}
		if wantErr := code == exitFindings; found && wantErr == strings.Contains(errOut, "checks failed") {
			return ""
		}
		return fmt.Sprintf("exit code %d, want %d, and in order %q; output:\n%s%s", got, code, words, out, errOut)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCheckGood(t *testing.T) {
	controlplane.Essential(t)
	t.Parallel()
	w := checked(t, nil, "patch")
	code, out, errOut := w.check(t, "")
	if code != exitGood || !strings.Contains(out, " √, 0 ‼, 0 ×") || errOut != "" {
		t.Errorf("exit code %d:\n%s%s", code, out, errOut)
	}
	shards, err := serving.Shards(t.Context(), w.client.CoreV1().RESTClient(), w.namespace)
	require.NoError(t, err)
	possible := ", ShardSelector"
	if !shards {
		possible = "; not ShardSelector: the API server ignores shard selectors"
	}
	for _, want := range []string{
		"√ the API server answers: Kubernetes v1.", "√ this machine's clock", "permissions that a member needs",
		"delivery is Filter; possible here: Filter, SlotLabel (with the permission to patch objects)" + possible,
		"√ the table is valid: epoch 43, 256 slots by Name, 2 members", "√ every member renews its Lease (2)", "√ their clocks", "√ they have the same kinds and options",
		"√ all 256 slots", "√ 2 of 2 members report", "√ the API server rejects writes from processes that are not members",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, _ = w.check(t, "-o json")
	var result check.Result
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != exitGood || result.Failed != 0 || result.Name != "web" ||
		len(result.Groups) < 8 || !strings.HasSuffix(result.Groups[0].Lines[0].Link, "#clusterversion") {
		t.Errorf("exit code %d, %v:\n%s", code, err, out)
	}
	if code, out, _ = w.check(t, "-o yaml"); code != exitGood || !strings.Contains(out, "\nfailed: 0\n") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// Each finding names its cure.
func TestCheckFindings(t *testing.T) {
	t.Parallel()
	t.Run("may not patch labels", func(t *testing.T) {
		t.Parallel()
		w := checked(t, map[string]string{coverage.SettingDelivery: "SlotLabel"})
		expect(t, w, exitFindings, "×", "PermissionMissing", "ServiceAccount "+w.namespace+"/operator may not patch configmaps in the cluster",
			"add this to the rules of its ClusterRole",
			"      - apiGroups: [\"\"]\n        resources: [\"configmaps\"]\n        verbs: [\"patch\"]\n")
		expect(t, w, exitFindings, "×", "DeliveryImpossible", "delivery SlotLabel: the operator may not write the labels", "add the rules above")
	})
	t.Run("missing rule", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		rules := permission.Rules(w.name)
		rules[2].Verbs = []string{"get", "list", "watch"}
		_, err := w.client.RbacV1().Roles(w.namespace).Update(t.Context(),
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules}, metav1.UpdateOptions{})
		require.NoError(t, err)
		expect(t, w, exitFindings, "×", "PermissionMissing", "ServiceAccount "+w.namespace+
			"/operator may not create, update, delete leases.coordination.k8s.io in namespace "+w.namespace, "add this to the rules of its Role there",
			"      - apiGroups: [\"coordination.k8s.io\"]\n        resources: [\"leases\"]\n        verbs: [\"create\", \"update\", \"delete\"]\n")
	})
	t.Run("fence", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		bindings := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
		policies := w.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
		name := w.fence().ObjectName()
		policy, err := policies.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		again := "rota fence web -n " + w.namespace + " --service-account " + w.namespace + "/operator --resource configmaps --apply"
		old := policy.DeepCopy()
		old.Spec.Validations = old.Spec.Validations[:1]
		_, err = policies.Update(t.Context(), old, metav1.UpdateOptions{})
		require.NoError(t, err)
		expect(t, w, exitGood, "‼", "FenceOutdated", "the fence is not from this release: its policy is not as", again)
		require.NoError(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
		expect(t, w, exitGood, "‼", "FenceOff", "installed for configmaps, but not bound", "--apply")
		require.NoError(t, policies.Delete(t.Context(), name, metav1.DeleteOptions{}))
		expect(t, w, exitGood, "‼", "FenceMissing", "there is no fence", "rota fence web -n "+w.namespace+" --service-account")
	})
	t.Run("fence and members", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		w.put(t, halves())
		expect(t, w, exitFindings, "×", "FenceMember", "member web-0-a: it does not report the UID of its Pod", "set POD_UID")
		w.tell(t, halves(), "web-0-a", map[string]string{coverage.SettingImpersonates: `["system:serviceaccount:team:writer"]`})
		expect(t, w, exitFindings, "‼", "FenceImpersonated", `clients of web-0-a write as other users, by impersonation: ["system:serviceaccount:team:writer"]`, "own ServiceAccount")
		warnings := strings.Join(impersonators(t.Context(), w.plane.Config(), w.fence().Rota), "\n")
		if !strings.Contains(warnings, "clients of web-0-a write as other users") {
			t.Errorf("fence --apply warns of %q", warnings)
		}
		w.tell(t, halves(), "web-0-a", map[string]string{coverage.SettingBookmarkless: "ConfigMap"})
		expect(t, w, exitFindings, "‼", "BookmarksDropped", "web-0-a get no bookmarks in watches of ConfigMap", "pass watches through")
		cm, err := w.client.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), w.name, metav1.GetOptions{})
		if err == nil {
			cm.Annotations = map[string]string{fence.Annotation: fence.Off, "argocd.argoproj.io/tracking-id": "x"}
			_, err = w.client.CoreV1().ConfigMaps(w.namespace).Update(t.Context(), cm, metav1.UpdateOptions{})
		}
		require.NoError(t, err)
		expect(t, w, exitGood, "‼", "FenceOff", "installed for configmaps, but taken down", "kubectl annotate configmap", fence.Annotation+"-")
		expect(t, w, exitGood, "‼", "TablePruned", "Argo CD may delete the table", "take the ConfigMap out of Git")
	})
	t.Run("table", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		w.data(t, map[string]string{"format": "99", "epoch": "1"})
		expect(t, w, exitFindings, "×", "TableNewer", "rota "+w.namespace+"/web: a newer release wrote the table", "do not delete the table")
		if code, _, errOut := w.rota(t, "status web"); code != exitFindings || !strings.Contains(errOut, "do not delete it") {
			t.Errorf("status of a newer table: exit code %d: %s", code, errOut)
		}
		w.data(t, map[string]string{"format": "1", "epoch": "x"})
		expect(t, w, exitFindings, "×", "TableInvalid", "rota "+w.namespace+"/web: the table is invalid", "kubectl delete configmap -n "+w.namespace+" web")
		require.NoError(t, w.client.CoreV1().ConfigMaps(w.namespace).Delete(t.Context(), w.name, metav1.DeleteOptions{}))
		expect(t, w, exitFindings, "×", "TableLost", "rota "+w.namespace+"/web: there is no ConfigMap of that name, but 2 members have Leases",
			"try again after a lease")
	})
	t.Run("dead member, and one with a wrong clock", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		leases := w.client.CoordinationV1().Leases(w.namespace)
		change := func(id string, change func(*coordinationv1.Lease)) {
			lease, err := leases.Get(t.Context(), names.Lease(w.name, id), metav1.GetOptions{})
			if err == nil {
				change(lease)
				_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{FieldManager: "somebody"})
			}
			require.NoError(t, err)
		}
		change("web-0-a", func(l *coordinationv1.Lease) {
			l.Labels["x"] = "y" // the API server takes no change of these times alone
			for i := range l.ManagedFields {
				l.ManagedFields[i].Time = ptr.To(metav1.NewTime(time.Now().Add(-2 * time.Hour)))
			}
		})
		change("web-1-b", func(l *coordinationv1.Lease) {
			l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(-10 * time.Second)))
		})
		expect(t, w, exitFindings, "×", "MemberSilent", "member web-0-a slots 0-127: its Lease expired", "kubectl get pod web-0")
		expect(t, w, exitFindings, "‼", "ClockSkew", "member web-1-b: the clock of its machine is ", "behind the API server's", "synchronize it")
	})
	t.Run("members differ", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		tab := halves()
		w.tell(t, tab, "web-1-b", map[string]string{coverage.SettingLabel: "true", coverage.SettingLease: "20s"})
		expect(t, w, exitFindings, "‼", "SetupDiffers", "members differ in LeaseDuration: 15s (web-0-a), 20s (web-1-b)", "give them the same settings")
		w.tell(t, tab, "web-0-a", map[string]string{coverage.SettingWorkload: "web"})
		w.tell(t, tab, "web-1-b", map[string]string{coverage.SettingWorkload: "site", coverage.SettingLease: "20s"})
		expect(t, w, exitFindings, "×", "SetupClash", "members differ in LeaseDuration", "different workloads, site and web: give one of them another Options.Name")
		expect(t, w, exitFindings, "‼", "TwoWorkloads", "members belong to 2 workloads: site (web-1-b), web (web-0-a)", "another Options.Name")
		w.tell(t, tab, "web-1-b", map[string]string{coverage.SettingWorkload: "web"})
		tab.Members[0].Build, tab.Members[0].Joined, tab.Members[1].Joined = "v8", time.Now().Unix()-3600, time.Now().Unix()-7200
		w.put(t, tab)
		expect(t, w, exitFindings, "‼", "BuildsDiffer", "members run 2 builds, and none has joined for 1h0m0s: v7 (web-1-b), v8 (web-0-a)", "finish the rollout")
	})
	t.Run("closed slot", func(t *testing.T) {
		t.Parallel()
		short := map[string]string{coverage.SettingLease: "1s", coverage.SettingFence: "500ms"}
		w := checked(t, short)
		lease, err := w.client.CoordinationV1().Leases(w.namespace).Get(t.Context(), names.Lease(w.name, "web-0-a"), metav1.GetOptions{})
		require.NoError(t, err)
		short[coverage.SettingDelivery] = "Filter"
		w.report(t, &coverage.Report{
			Member: "web-0-a", Serial: 3, Open: slot.SetOf(slot.Range{First: 0, Last: 126}), Setup: short,
			Digests: coverage.Digests{{Kind: "ConfigMap"}: map[slot.Slot]sharding.Digest{}},
		}, lease)
		expect(t, w, exitFindings, "×", "SlotClosed", "member web-0-a slot 127: the owner reports that it does not work on them", "restart that member")
		// Without another look nobody knows whether it lasts.
		if code, out, _ := w.check(t, "--wait 0s"); code != exitGood || !strings.Contains(out, "‼ member web-0-a slot 127: ") ||
			strings.Contains(out, "owners report that they work") {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		// Unless it is told how long, it looks for as long as that takes.
		result, err := check.Run(t.Context(), controlplane.For(t).Config(),
			check.Options{Rota: types.NamespacedName{Namespace: w.namespace, Name: w.name}, Longer: true})
		require.NoError(t, err)
		if result.Failed != 1 {
			t.Errorf("a closed slot, with Longer: %+v", result)
		}
	})
	t.Run("moves", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		tab := halves()
		for i := range tab.Members {
			tab.Members[i].PodUID = "uid-of-" + tab.Members[i].ID
		}
		tab.Runs[1].Next = "web-0-a"
		w.put(t, tab)
		if code, out, _ := w.check(t, "--wait 3s"); code != exitGood || !strings.Contains(out, "‼ member web-0-a slots 128-255: they have been moving") {
			t.Errorf("exit code %d:\n%s", code, out)
		}
	})
	t.Run("orders", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		tab := halves()
		for i := range tab.Members {
			tab.Members[i].PodUID, tab.Members[i].MaxFormat = "uid-of-"+tab.Members[i].ID, table.OrderFormat
		}
		w.put(t, tab)
		for _, line := range []string{"pause web --reason upgrade", "drain web-0-a web --reason memory"} {
			if code, out, errOut := w.rota(t, line); code != exitGood {
				t.Fatalf("rota %s: exit code %d:\n%s%s", line, code, out, errOut)
			}
		}
		expect(t, w, exitGood, "‼", "MovesPaused", "moves are paused since ", "(upgrade)", "rota resume -n "+w.namespace+" web")
		expect(t, w, exitGood, "‼", "MemberDrained", "member web-0-a: drained since ", "(memory)",
			"rota undrain -n "+w.namespace+" web-0-a web")
	})
	t.Run("events", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		s, err := store.NewKubernetes(controlplane.For(t).Config(), store.Options{Namespace: w.namespace, Name: w.name, Instance: "web-2"})
		require.NoError(t, err)
		defer s.Close()
		s.Notify(t.Context(), member.Notify{Reason: "NotJoining", Message: "no workers", Warning: true})
		s.Notify(t.Context(), member.Notify{Reason: "Coverage", Message: "slot 7: nobody works on it", Warning: true})
		expect(t, w, exitGood, "‼", "NotJoining", "member web-2: NotJoining, ", "ago: no workers")
		expect(t, w, exitGood, "‼", "Coverage", "member web-2: ", "slot 7: nobody works on it", "rota verify shows the current state")
	})
	t.Run("slots, duties and kinds", func(t *testing.T) {
		t.Parallel()
		w := checked(t, nil)
		tab := halves()
		tab.Runs[1].Owner = ""
		w.put(t, tab)
		expect(t, w, exitFindings, "×", "SlotUnowned", "slots 128-255: no member owns them", "look at their logs")
		code, out, _ := w.check(t, "--kind Gadget.example.com --owned Secret")
		for _, want := range []string{
			"× the API server does not serve the kind Gadget.example.com", "may not list, watch secrets in the cluster",
			"‼ sharded kinds without a fence: secrets", "--resource configmaps --resource secrets --apply",
		} {
			if code != exitFindings || !strings.Contains(out, want) {
				t.Errorf("exit code %d, no %q in\n%s", code, want, out)
			}
		}
	})
}

// Who looks may do less than the operator. What they may not see is one finding each; a table that they may not read is the
// end.
func TestCheckAsOthers(t *testing.T) {
	t.Parallel()
	w := checked(t, nil)
	stranger := t.TempDir() + "/stranger"
	require.NoError(t, controlplane.For(t).WriteUserKubeconfig(stranger, "stranger"))
	code, out, errOut := w.check(t, "", stranger)
	if code != exitForbidden || out != "" || !strings.Contains(errOut, `stranger may not get configmaps in namespace `+w.namespace) {
		t.Errorf("exit code %d:\n%s%s", code, out, errOut)
	}
	code, out, errOut = w.rota(t, "check other")
	if code != exitMissing || out != "" || !strings.Contains(errOut, "no member has ever started") || strings.Count(errOut, "\n") != 1 {
		t.Errorf("exit code %d:\n%s%s", code, out, errOut)
	}
	// The operator itself may not read policies and events, nor impersonate.
	code, out, errOut = w.rota(t, "check --as system:serviceaccount:"+w.namespace+":"+account+" web")
	for _, want := range []string{
		"√ this user has the 15 permissions that a member needs", "may not get validatingadmissionpolicies.admissionregistration.k8s.io", "‼ not known: fence: ", "‼ not known: warnings: ",
		"ask for that permission",
	} {
		if code != exitGood || !strings.Contains(out, want) {
			t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errOut)
		}
	}
	// Members that are no Pods do not tell their ServiceAccount.
	if code, out, _ = w.rota(t, "check"); code != exitGood || !strings.Contains(out, "‼ the operator's permissions were not checked") ||
		!strings.Contains(out, "--service-account NAMESPACE/NAME") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	_, err := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1"},
		Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "manager", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	if code, out, _ = w.rota(t, "check"); code != exitGood || !strings.Contains(out, "√ ServiceAccount "+w.namespace+"/operator has the 15") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	// Whoever may read all of the rota, but not impersonate, learns what is missing for that.
	viewer := t.TempDir() + "/viewer"
	require.NoError(t, controlplane.For(t).WriteUserKubeconfig(viewer, "viewer-of-"+w.namespace))
	w.plane.Grant(t, w.namespace, "viewer", controlplane.User("viewer-of-"+w.namespace),
		rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}})
	cfg, err := clientcmd.BuildConfigFromFlags("", viewer)
	require.NoError(t, err)
	granted(t, cfg, permission.Error{Namespace: w.namespace, Resource: "configmaps", Verb: "get"})
	if code, out, _ = w.check(t, "", viewer); code != exitGood || !strings.Contains(out, "could not be checked") ||
		!strings.Contains(out, "resourceNames: [\"operator\"]\n        verbs: [\"impersonate\"]") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

// `rota check --pre` looks at a cluster in which nothing is installed.
func TestCheckPre(t *testing.T) {
	t.Parallel()
	w := checked(t, nil, "patch")
	w.converse(t, "check_pre.txt")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}
	_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
	code, out, _ := w.rota(t, "check --pre taken")
	if code != exitFindings || !strings.Contains(out, "× ConfigMap "+w.namespace+"/taken is not a rota's") || !strings.Contains(out, "another Options.Name") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

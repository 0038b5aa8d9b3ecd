package main

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// written is a rota that no process works on: a table, Leases and reports as members would have written them.
type written struct {
	plane           *controlplane.ControlPlane
	client          kubernetes.Interface
	namespace, name string
	uid             string
}

// halves is a table in which web-0-a has slots 0-127 and web-1-b has the rest.
func halves() *table.Table {
	tab := table.New(256, slot.KeyName, 43)
	for _, id := range []string{"web-0-a", "web-1-b"} {
		tab.Put(table.Member{ID: id, Pod: id[:5], Build: "v7", Weight: 1, MinFormat: 1, MaxFormat: 2, Joined: time.Now().Unix() - 60})
	}
	tab.Runs = []table.Run{
		{Slots: slot.Range{First: 0, Last: 127}, Owner: "web-0-a", Epoch: 41},
		{Slots: slot.Range{First: 128, Last: 255}, Owner: "web-1-b", Epoch: 42},
	}
	return tab
}

// writeRota creates a rota with that table in a namespace of its own.
func writeRota(t *testing.T, tab *table.Table) *written {
	t.Helper()
	w := newWritten(t)
	w.make(t, tab)
	return w
}

// newWritten is a namespace in which nothing has been written.
func newWritten(t *testing.T) *written {
	t.Helper()
	plane := controlplane.For(t)
	return &written{plane: plane, client: kubernetes.NewForConfigOrDie(plane.Config()), namespace: controlplane.Namespace(t), name: "web"}
}

// make creates the rota with that table.
func (w *written) make(t *testing.T, tab *table.Table) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: map[string]string{names.LabelRota: w.name}}}
	cm, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
	w.uid = string(cm.UID)
	w.put(t, tab)
	for _, m := range tab.Members {
		w.member(t, tab, m.ID)
	}
}

// put writes the table.
func (w *written) put(t *testing.T, tab *table.Table) {
	t.Helper()
	tab.UID = w.uid
	w.data(t, table.Encode(tab))
}

func (w *written) data(t *testing.T, data map[string]string) {
	t.Helper()
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	cm, err := maps.Get(t.Context(), w.name, metav1.GetOptions{})
	if err == nil {
		cm.Data = data
		_, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{})
	}
	require.NoError(t, err)
}

// member writes the Lease and the report of a member that works well. The Lease lasts for an hour.
func (w *written) member(t *testing.T, tab *table.Table, id string) {
	t.Helper()
	lease, err := w.client.CoordinationV1().Leases(w.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: names.Lease(w.name, id), Labels: map[string]string{names.LabelRota: w.name},
			Annotations: map[string]string{names.AnnotationGate: names.GateOpen, names.AnnotationEpoch: "43", names.AnnotationTableUID: w.uid},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &id, RenewTime: ptr.To(metav1.NewMicroTime(time.Now())), LeaseDurationSeconds: ptr.To(int32(3600))},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.report(t, &coverage.Report{
		Member: id, Serial: 1, Open: tab.Owned(id), Digests: coverage.Digests{},
		Setup: map[string]string{coverage.SettingLease: "15s", coverage.SettingFence: "2.5s", coverage.SettingDelivery: "Filter"},
		Handovers: []coverage.Handover{{
			Slots: tab.Owned(id), Count: 128, Cause: table.CauseHanded, Epoch: map[string]uint64{"web-0-a": 41, "web-1-b": 42}[id], From: "web-9-z", Ended: time.Now(), Warm: 200 * time.Millisecond,
		}},
	}, lease)
}

func (w *written) report(t *testing.T, r *coverage.Report, lease *coordinationv1.Lease) {
	t.Helper()
	reports, err := coverage.NewReports(w.plane.Config(), w.namespace, w.name)
	if err == nil {
		err = reports.Publish(t.Context(), r, lease.UID)
	}
	require.NoError(t, err)
}

// rota runs a command in the rota's namespace, as the administrator or with the kubeconfig that is given.
func (w *written) rota(t *testing.T, line string, kubeconfig ...string) (code exitCode, out, errOut string) {
	t.Helper()
	path := append(kubeconfig, w.plane.Kubeconfig())[0]
	args := append([]string{"rota"}, strings.Fields(line)...)
	return runCommand(t.Context(), append(args, "-n", w.namespace, "--kubeconfig", path)...)
}

// `rota status` on a real API server: with and without a name, in all formats, of rotas that are not there, and of those
// that cannot be read.
func TestStatusOfARota(t *testing.T) {
	controlplane.Essential(t)
	t.Parallel()
	w := writeRota(t, halves())
	s, err := store.NewKubernetes(controlplane.For(t).Config(), store.Options{Namespace: w.namespace, Name: w.name, Instance: "web-0"})
	require.NoError(t, err)
	s.Notify(t.Context(), member.Notify{Reason: "NotJoining", Message: "no workers", Warning: true})
	s.Close()
	stranger := t.TempDir() + "/stranger"
	require.NoError(t, controlplane.For(t).WriteUserKubeconfig(stranger, "stranger"))
	w.converse(t, "status.txt", "$STRANGER", stranger)
	_, out, _ := runCommand(t.Context(), "rota", "__complete", "status", "-n", w.namespace, "--kubeconfig", controlplane.For(t).Kubeconfig(), "w")
	if !strings.HasPrefix(out, "web\n") {
		t.Errorf("completion: %s", out)
	}
	w.data(t, map[string]string{"format": "1", "epoch": "x"})
	w.expect(t, "status", exitFindings, "the table is invalid")
	err = w.client.CoreV1().ConfigMaps(w.namespace).Delete(t.Context(), w.name, metav1.DeleteOptions{})
	require.NoError(t, err)
	w.expect(t, "status web", exitMissing, "2 members have Leases")
	w.expect(t, "status", exitMissing, "2 members have Leases")
}

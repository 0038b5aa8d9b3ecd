package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/rota-dev/rota/demo"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

// between is the time between two faults of TestDemo.
const between = 5 * time.Second

// TestDemo: rota-demo through the front, while its API servers are killed in turn, all of the Deployment at once, and
// the static one. The demo's checker reads the audit logs of all three.
func TestDemo(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
	w := newWorld(t, controlplane.Options{AuditPolicy: "../../../test/rig/audit-policy.yaml"})
	logs := w.plane.AuditLogs()
	for _, s := range w.deploy {
		s.start(t)
		logs = append(logs, s.audit)
	}
	w.startFront()
	for _, s := range w.deploy {
		w.until("a server of the Deployment", s.lingers)
	}
	w.publish(&endpoint{ready: true}, &endpoint{ready: true})
	up := func(what string) {
		w.rowsAre(what, func(r map[string]row) bool {
			return r[w.deploy[0].address].status == "UP" && r[w.deploy[1].address].status == "UP" &&
				r[w.front.Static[0]].status == "UP"
		})
	}
	up("all are up")

	ctx, cancel := context.WithCancel(t.Context())
	faults, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ; await.Sleep(ctx, between) == nil; faults++ {
			switch victims := w.deploy[:]; faults % 4 {
			case 3:
				if err := w.plane.KillServer("apiserver-0"); err != nil {
					t.Error(err)
				}
				if err := w.plane.StartServer("apiserver-0"); err != nil {
					t.Error(err)
				}
			default:
				if n := faults % 4; n < 2 {
					victims = victims[n : n+1]
				}
				for _, s := range victims {
					s.kill()
				}
				_ = await.Sleep(context.Background(), time.Second) // clients are elsewhere
				for _, s := range victims {
					s.start(t)
					if err := await.Until(t.Context(), 50*time.Millisecond, limit, s.lingers); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	report, err := demo.Run(ctx, demo.Options{
		Kubeconfig: w.kubeconfig(), AuditLogs: logs, Objects: 60, Rate: 10, Slots: slot.DefaultCount,
		LeaseDuration: 6 * time.Second, Baseline: 10 * time.Second, Progress: t.Output(), Command: []string{self},
	})
	cancel()
	<-done
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Error(err)
	}
	t.Logf("%d faults\n%s", faults, &text)
	report.TakeOverBoundSeconds *= 10
	if bad := report.Failures(); len(bad) > 0 {
		t.Errorf("%s", strings.Join(bad, "; "))
	}
	if report.ForeignWrites == nil || faults < 4 {
		t.Errorf("%d faults; report: %+v", faults, report)
	}
}

// kubeconfig writes an administrator's kubeconfig for the front.
func (w *world) kubeconfig() string {
	c, k := w.plane.Config(), api.NewConfig()
	k.Clusters["a"] = &api.Cluster{Server: "https://" + w.front.Listen, CertificateAuthorityData: c.CAData,
		TLSServerName: w.front.ServerName}
	k.AuthInfos["a"] = &api.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	k.Contexts["a"] = &api.Context{Cluster: "a", AuthInfo: "a"}
	k.CurrentContext = "a"
	path := filepath.Join(w.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

package rotatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/gate"
)

// member is a replica of the operator. In the run with one member, it shares nothing.
type member struct {
	run  *run
	name string
	// number is the number of its Pod within the run.
	number int
	// podUID is the UID of its Pod. restarted is true unless it is the Pod's first container.
	podUID    string
	restarted bool

	wire  *wire
	rota  *rota.Rota
	mgr   *ctrlrt.Manager
	gate  *gate.Gate
	slots int

	killed  atomic.Bool
	drained atomic.Bool
	stop    context.CancelFunc
	// done is closed when the manager has ended, with err.
	done chan struct{}
	err  error
}

// endTimeout is how long a manager may take to end, including its leave.
const endTimeout = 30 * time.Second

// newMember makes a member and starts it. predecessor is the earlier member in the same Pod, or nil.
func (r *run) newMember(ctx context.Context, predecessor *member) error {
	k := r.kit
	m := &member{run: r, podUID: string(uuid.NewUUID()), done: make(chan struct{})}
	if predecessor == nil {
		k.started++
		r.pods++
		m.number = r.pods
		m.name = fmt.Sprintf("member-%d", k.started)
	} else {
		m.name, m.podUID, m.restarted = predecessor.name, predecessor.podUID, true
		m.number = predecessor.number
	}
	m.wire = newWire(m)
	log := r.logger(m.name)
	own := rest.CopyConfig(k.o.Config)
	own.QPS = -1
	own.Wrap(m.wire.own)
	o := k.o.Rota
	o.Name, o.Namespace, o.Logger = rotaName, rotaName, log
	o.Identity = rota.Identity{Pod: m.name, PodUID: m.podUID, Container: "main", Workload: rotaName, Build: rotaName}
	o.LeaderElectionID, o.LeaderElectionNamespace, o.NoStockReplicas = "", "", true
	o.Solo = r.fault.alone
	var err error
	if m.rota, err = rota.New(own, o); err != nil {
		return err
	}
	cfg := rest.CopyConfig(k.o.Config)
	cfg.QPS = -1 // a rate limit could hide races
	cfg.Wrap(m.wire.operators)
	if m.mgr, err = ctrlrt.NewManager(cfg, m.rota, k.managerOptions(log)); err != nil {
		return err
	}
	parts := m.rota.Adapt(adapter.Grant())
	parts.Observe(observer{r.reconciles, m})
	m.gate, m.slots = parts.Gate, int(parts.Slots)
	k.key, k.slots = parts.Key, parts.Slots
	if err := callback(ctx, "Options.Setup", func() error { return k.o.Setup(m.mgr) }); err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background()) // the end of the run stops it
	m.stop = stop
	go func() {
		defer close(m.done)
		m.err = m.mgr.Start(life)
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members, r.all = append(r.members, m), append(r.all, m)
	return nil
}

// managerOptions returns the options of a member's manager.
func (k *kit) managerOptions(log logr.Logger) manager.Options {
	o := k.o.Manager
	o.Scheme = k.o.Scheme
	if o.Logger.GetSink() == nil {
		o.Logger = log
	}
	o.Metrics = server.Options{BindAddress: "0"}
	o.HealthProbeBindAddress, o.PprofBindAddress = "0", "0"
	o.WebhookServer = newMute()
	o.Controller.SkipNameValidation = ptr.To(true)
	o.GracefulShutdownTimeout = ptr.To(5 * time.Second)
	if o.LeaderElection {
		o.LeaderElectionID = cmp.Or(o.LeaderElectionID, rotaName+"-leader")
		o.LeaderElectionNamespace = cmp.Or(o.LeaderElectionNamespace, rotaName)
		if o.LeaseDuration == nil && o.RenewDeadline == nil && o.RetryPeriod == nil {
			o.LeaseDuration, o.RenewDeadline = ptr.To(defaultLease), ptr.To(defaultLease*2/3)
			o.RetryPeriod = ptr.To(defaultLease / 10)
		}
		o.LeaderElectionReleaseOnCancel = true
	}
	return o
}

// owns reports whether the member works on a slot.
func (m *member) owns(s int) bool { return m.gate.Owns(slotOf(s)) }

func (m *member) isKilled() bool { return m.killed.Load() }

// die blocks all requests of a member that was killed. To others, its process looks dead.
func (m *member) die() {
	m.run.remove(m)
	m.wire.unplug()
	m.stop()
	m.run.reconciles.gone(m)
}

// leave ends the member as SIGTERM does.
func (m *member) leave() error {
	m.run.remove(m)
	m.stop()
	return m.end()
}

// end waits until the manager has ended and its writes are answered.
func (m *member) end() error {
	m.stop()
	defer func() {
		m.wire.unplug()
		m.wire.underway.Wait()
	}()
	select {
	case <-m.done:
	case <-time.After(endTimeout):
		return fmt.Errorf("the manager of %s has not ended %v after its context did: does a reconcile or a runnable ignore "+
			"its context? %s", m.name, endTimeout, m.inFlight())
	}
	m.run.reconciles.gone(m)
	// A leave waits for writes that may still be carried out.
	late := m.err != nil && strings.Contains(m.err.Error(), "with work in flight") && m.run.record.uncertain(m.name)
	if m.isKilled() || m.err == nil || late {
		return nil
	}
	return fmt.Errorf("the manager of %s ended: %w", m.name, m.err)
}

// inFlight describes the reconciles that have been in flight for long.
func (m *member) inFlight() string {
	var texts []string
	for _, f := range m.rota.Status().Stuck {
		texts = append(texts, fmt.Sprintf("the reconcile of %s/%s has gone on for %v", f.Key.Namespace, f.Key.Name,
			f.For.Round(time.Second)))
	}
	return strings.Join(texts, "; ")
}

// ended reports whether the manager has ended unexpectedly.
func (m *member) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// waits returns what the member waits for before it works.
func (m *member) waits() error {
	if m.ended() {
		return cmp.Or(m.err, errors.New("its manager has ended"))
	}
	return m.rota.Ready(nil)
}

// mute is a webhook server that serves nothing, since two managers in one process cannot listen on one port.
type mute struct{ mux *http.ServeMux }

var _ webhook.Server = mute{}

func newMute() mute { return mute{http.NewServeMux()} }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (mute) NeedLeaderElection() bool { return false }

// Register implements webhook.Server.
func (s mute) Register(path string, hook http.Handler) { s.mux.Handle(path, hook) }

// WebhookMux implements webhook.Server.
func (s mute) WebhookMux() *http.ServeMux { return s.mux }

// StartedChecker implements webhook.Server.
func (mute) StartedChecker() healthz.Checker { return healthz.Ping }

// Start implements manager.Runnable.
func (mute) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

package ctrlrt

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/rota-dev/rota/internal/adapter"
)

// elected are the places in the program that called Elected of a manager without leader election.
type elected struct {
	mu      sync.Mutex
	places  []string
	started bool
}

// electedMax is the largest number of places that are remembered.
const electedMax = 20

// Elected returns a channel that is closed once this replica is the leader of the manager's leader election.
//
// Without LeaderElection in the manager's options, controller-runtime closes the channel on every replica once the
// manager has started. Work that waits for it would run on all replicas at once, even before they have joined. So Start
// returns an error if Elected is called before the member has joined. A later call is logged as an error, once for each
// place. Make such work a duty (AddDuty), or wait for rota.Rota.Joined if every replica should do it. With
// rota.Options.Solo there is only one replica, and no call is refused.
func (m *Manager) Elected() <-chan struct{} {
	if !m.options.LeaderElection && !m.rota.Adapt(adapter.Grant()).Solo {
		m.elected.call(m, caller())
	}
	return m.inner.Elected()
}

// call records a call. After the manager's start it makes the manager end, or logs the call if the member has joined.
func (e *elected) call(m *Manager, place string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.places, place) || len(e.places) >= electedMax {
		return
	}
	e.places = append(e.places, place)
	if !e.started {
		return
	}
	err := electedError(m, place)
	select {
	case <-m.rota.Joined():
		m.GetLogger().Error(err, "Elected of a manager without leader election was called")
	default:
		_ = m.kinds.refuse(err)
	}
}

// start returns an error for calls before the manager's start.
func (e *elected) start(m *Manager) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started = true
	if len(e.places) == 0 {
		return nil
	}
	return electedError(m, e.places...)
}

func electedError(m *Manager, places ...string) error {
	return fmt.Errorf("rota %s: Elected of the manager was called at %s, but the manager has no leader election, so that "+
		"its channel closes on every replica, and what waits for it would run on all of them at once. Make that work a "+
		"duty, which one member at a time does: add it with AddDuty of the ctrlrt.Manager; %sor, if every replica is to do "+
		"it, wait for Joined of the rota.Rota", m.rota.Name(), strings.Join(places, ", "), m.orElect())
}

// needsLeader reports whether a manager with leader election starts a runnable on the leader only.
func needsLeader(r manager.Runnable) bool {
	switch r := r.(type) {
	case hasCache, webhook.Server:
		return false
	case manager.LeaderElectionRunnable:
		return r.NeedLeaderElection()
	default:
		return true
	}
}

// leaderOnly has the names of the runnables that run on the leader only.
type leaderOnly struct {
	mu      sync.Mutex
	names   []string
	started bool
}

// add adds a name. After the manager's start it logs or refuses the name at once.
func (l *leaderOnly) add(m *Manager, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return m.judgeLeaderOnly(name)
	}
	l.names = append(l.names, name)
	return nil
}

// start logs the names added so far, or refuses them.
func (l *leaderOnly) start(m *Manager) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = true
	return m.judgeLeaderOnly(l.names...)
}

func (m *Manager) judgeLeaderOnly(names ...string) error {
	switch {
	case len(names) == 0:
		return nil
	case m.options.LeaderElection:
		m.GetLogger().Info("These run on the leader only. Where they fill what reconcilers of sharded controllers read, "+
			"such as a lister or a cache of tokens, "+
			"it is empty on all other members: give such a runnable a method NeedLeaderElection that returns false", "runnables",
			strings.Join(names, ", "))
		return nil
	default:
		return fmt.Errorf("rota %s: these are not sharded and need a leader, but the manager has no leader election, so "+
			"that they would run on every replica at "+
			"once: %s. Make each a duty, which one member at a time does: build a controller with "+
			"ctrlrt.NewDutyControllerManagedBy, and add a runnable with AddDuty of the ctrlrt.Manager; "+m.orElect()+"or shard "+
			"a controller with ctrlrt.NewControllerManagedBy; "+
			"or, for what may run on every replica, set NeedLeaderElection: ptr.To(false) in the controller's options, or give "+
			"the runnable a method "+
			"NeedLeaderElection that returns false", m.rota.Name(), strings.Join(names, ", "))
	}
}

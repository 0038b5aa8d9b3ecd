package ctrlrt_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Kinds of runnables.
const (
	aFunction         = "a function"
	forTheLeader      = "a runnable for the leader"
	forEveryone       = "a runnable for every replica"
	warmedLeader      = "a runnable for the leader with a warmup"
	warmedForEveryone = "a runnable for every replica with a warmup"
	aServer           = "a server"
	leadersServer     = "a server for the leader"
	hasACache         = "a runnable with a cache"
	hasASlowCache     = "a runnable with a cache that syncs when released"
	bareCache         = "a cache"
	webhooks          = "a webhook server"
)

// What runnables do.
const (
	runs    = "" // until it is told to stop
	returns = "returns at once"
	fails   = "fails at once"
	lingers = "goes on until released when it is told to stop"
)

// The groups of controller-runtime's manager, in the order in which it stops them. Within a group there is no order.
const (
	othersGroup = iota
	leaderGroup
	cachesGroup
	webhooksGroup
	serversGroup
)

func groupOf(kind string) int {
	switch kind {
	case forEveryone, warmedForEveryone:
		return othersGroup
	case hasACache, hasASlowCache:
		return cachesGroup
	case webhooks:
		return webhooksGroup
	case aServer:
		return serversGroup
	}
	return leaderGroup
}

var errOnPurpose = errors.New("on purpose")

// lived is a runnable that notes what happens to it. Its world's lock guards what it notes.
type lived struct {
	w         *lifeWorld
	name      string
	kind, way string
	group     int
	told      string // what Add said of it

	ctx                             context.Context
	started, warmed, stopped, ended bool
	finishing                       bool // the script has it end
	chance                          bool // the manager ended while it was added
	end                             chan error
	released                        chan struct{}
	release                         func()
}

func newLived(w *lifeWorld, name string, kind, way string) *lived {
	switch kind {
	case aServer, leadersServer, hasASlowCache:
		way = runs
	}
	l := &lived{w: w, name: name, kind: kind, way: way, group: groupOf(kind),
		end: make(chan error, 1), released: make(chan struct{})}
	if kind == bareCache && w.member != nil {
		l.group = cachesGroup // a difference
	}
	l.release = sync.OnceFunc(func() { close(l.released) })
	return l
}

func (l *lived) warms() bool { return l.kind == warmedLeader || l.kind == warmedForEveryone }

// runnable returns what a manager is given.
func (l *lived) runnable() manager.Runnable {
	switch l.kind {
	case forTheLeader:
		return electable{l, true}
	case forEveryone:
		return electable{l, false}
	case warmedLeader:
		return warmed{electable{l, true}}
	case warmedForEveryone:
		return warmed{electable{l, false}}
	case aServer, leadersServer:
		return &manager.Server{Name: l.name, Server: &http.Server{}, // nobody connects
			Listener:            &listening{l: l, closed: make(chan struct{})},
			OnlyServeWhenLeader: l.kind == leadersServer}
	case hasACache, hasASlowCache:
		return cacheOwner{electable{l, true}}
	case bareCache:
		return justCache{l: l}
	case webhooks:
		return webhookServer{electable{l, false}}
	}
	return manager.RunnableFunc(l.run)
}

func (l *lived) run(ctx context.Context) error {
	l.begin(ctx)
	err := l.last(ctx)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.ended = true
	return err
}

func (l *lived) begin(ctx context.Context) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.started {
		l.w.facts[l.name] = "started twice"
	}
	l.ctx, l.started = ctx, true
}

func (l *lived) last(ctx context.Context) error {
	switch l.way {
	case returns:
		return nil
	case fails:
		return errOnPurpose
	}
	select {
	case err := <-l.end:
		return err
	case <-ctx.Done():
	}
	l.stop()
	if l.way == lingers {
		<-l.released
	}
	return nil
}

// stop notes what else has been told to stop, and has ended, when this runnable is told to.
func (l *lived) stop() {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.stopped = true
	if l.w.script.ordered() && !l.w.hides(l) {
		l.w.facts[l.name+" is told to stop"] = l.w.others(l.group)
	}
}

// others says what has ended and what has been told to, of the groups besides this one. For callers that hold w.mu.
func (w *lifeWorld) others(group int) string {
	var ended, told []string
	for _, s := range w.runnables {
		switch {
		case s.group == group || !s.started || w.hides(s):
		case s.ended:
			ended = append(ended, s.name)
		case s.stopped, s.ctx != nil && s.ctx.Err() != nil:
			told = append(told, s.name)
		}
	}
	slices.Sort(ended)
	slices.Sort(told)
	return fmt.Sprintf("ended: %s; told to: %s", strings.Join(ended, ", "), strings.Join(told, ", "))
}

// electable says whether it needs leader election.
type electable struct {
	l     *lived
	needs bool
}

func (e electable) Start(ctx context.Context) error { return e.l.run(ctx) }
func (e electable) NeedLeaderElection() bool        { return e.needs }

type warmed struct{ electable }

func (e warmed) Warmup(context.Context) error {
	e.l.w.mu.Lock()
	defer e.l.w.mu.Unlock()
	e.l.warmed = true
	return nil
}

// cacheOwner has a cache, by which controller-runtime chooses its group, whatever it needs.
type cacheOwner struct{ electable }

func (c cacheOwner) GetCache() cache.Cache { return justCache{l: c.l} }

// justCache is a cache without anything in it.
type justCache struct {
	cache.Cache
	l *lived
}

func (c justCache) Start(ctx context.Context) error { return c.l.run(ctx) }

func (c justCache) WaitForCacheSync(ctx context.Context) bool {
	if c.l.kind != hasASlowCache {
		return true
	}
	select {
	case <-c.l.released:
		return true
	case <-ctx.Done():
		return false
	}
}

type webhookServer struct{ electable }

func (webhookServer) Register(string, http.Handler)   {}
func (webhookServer) StartedChecker() healthz.Checker { return healthz.Ping }
func (webhookServer) WebhookMux() *http.ServeMux      { return http.NewServeMux() }

// listening notes when its server serves, and when it ends.
type listening struct {
	l      *lived
	close  sync.Once
	closed chan struct{}
}

func (n *listening) Accept() (net.Conn, error) {
	n.l.w.mu.Lock()
	n.l.started = true
	n.l.w.mu.Unlock()
	select {
	case <-n.closed:
		return nil, net.ErrClosed
	case err := <-n.l.end:
		n.l.w.mu.Lock()
		n.l.ended = true
		n.l.w.mu.Unlock()
		return nil, err
	}
}

func (n *listening) Close() error {
	n.close.Do(func() {
		close(n.closed)
		n.l.w.mu.Lock()
		ended := n.l.ended
		n.l.ended = true
		n.l.w.mu.Unlock()
		if !ended {
			n.l.stop()
		}
	})
	return nil
}

func (n *listening) Addr() net.Addr { return &net.TCPAddr{} }

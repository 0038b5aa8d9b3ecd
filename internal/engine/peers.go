package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/peer"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// peers connects this member with the others.
type peers struct {
	rota      *Engine
	key       *peer.Key
	directory *peer.Directory
	client    *peer.Client
	server    *peer.Server
	// entry is what this member publishes, once it listens.
	entry atomic.Pointer[peer.Entry]
	// events are the events that wait to be forwarded, and pending the same with those that wait for another try.
	events  workqueue.TypedRateLimitingInterface[peerEvent]
	mu      sync.Mutex
	pending map[peerEvent]struct{}
	silent  map[string]time.Time // members that could not be reached, and until when nothing is sent to them
}

// peerEvent is an event about an object of another member.
type peerEvent struct {
	Controller string               `json:"controller"`
	Object     types.NamespacedName `json:"object"`
}

const (
	// eventsRoute is the route of forwarded events.
	eventsRoute = "events"
	// eventSenders is how many events are forwarded at a time, and maxEvents how many may wait.
	eventSenders, maxEvents = 8, 10_000
	// eventTries is how often an event is sent before it is dropped: for about a minute. A dead owner is replaced earlier.
	eventTries = 20
	// silence is how long no event is sent to a member that could not be reached.
	silence = time.Second
	// forwardPatience is how long a request waits for an owner of its object. Handovers take a fraction of a second.
	forwardPatience = 5 * time.Second
)

// newPeers returns nil if this member is not to be reached by others. read reads what a member publishes.
func newPeers(r *Engine, read func(ctx context.Context, id string) (string, error)) (*peers, error) {
	if r.opts.Address == "" {
		return nil, nil
	}
	key, err := peer.NewKey()
	if err != nil {
		return nil, err
	}
	p := &peers{
		rota: r, key: key, pending: map[peerEvent]struct{}{}, silent: map[string]time.Time{},
		events: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[peerEvent](50*time.Millisecond, 5*time.Second)),
	}
	p.directory = peer.NewDirectory(func(ctx context.Context, id string) (peer.Entry, error) {
		text, err := read(ctx, id)
		return peer.ParseEntry(text), err
	}, r.names)
	p.client = peer.NewClient(key, p.directory, r.ID)
	p.server = peer.NewServer(key, p.directory, r.log)
	return p, p.server.Handle(eventsRoute, http.HandlerFunc(p.serveEvent))
}

// names reports whether the last table names a member.
func (r *Engine) names(member string) bool {
	_, named := r.tableOf().Member(member)
	return named
}

// published returns the entry in this member's Lease, or an empty string.
func (p *peers) published() string {
	if p == nil || p.entry.Load() == nil {
		return ""
	}
	return p.entry.Load().String()
}

// listen opens the port and serves other members until the returned function is called.
func (p *peers) listen(ctx context.Context) (end func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.rota.opts.Address)
	if err != nil {
		return nil, fmt.Errorf("Options.Address: %w", err)
	}
	host, port, err := splitAddress(p.rota.opts.Address)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && port == "0" {
		port = strconv.Itoa(tcp.Port)
	}
	entry := p.key.Entry(net.JoinHostPort(cmp.Or(host, os.Getenv("POD_IP")), port))
	p.entry.Store(&entry)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := p.server.Serve(serving, listener); err != nil {
			p.rota.log.Error(err, "Cannot serve other members any more", "address", entry.Address)
		}
	}()
	var sending sync.WaitGroup
	for range eventSenders {
		sending.Go(func() { p.sendEvents(serving) })
	}
	return func() {
		timer := time.AfterFunc(closeTimeout, stop)
		p.events.ShutDownWithDrain()
		p.events.ShutDown() // ends the wait of those that would be sent again later
		sending.Wait()
		timer.Stop()
		stop()
		p.mu.Lock()
		left := slices.Collect(maps.Keys(p.pending))
		p.mu.Unlock()
		for _, e := range left {
			p.drop(e, errors.New("this member has ended"))
		}
		<-served
		p.client.Close()
	}, nil
}

// splitAddress splits an address. The host is empty if it stands for all addresses of the machine.
func splitAddress(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if ip, notIP := netip.ParseAddr(host); notIP == nil && ip.IsUnspecified() {
		host = ""
	}
	return host, port, err
}

// checkAddress returns an error for an invalid Options.Address.
func (o Options) checkAddress() error {
	if o.Address == "" || o.Solo {
		return nil
	}
	host, port, err := splitAddress(o.Address)
	if err != nil {
		return fmt.Errorf("Options.Address %q: %w: it must be a port such as \":9444\", or a host and a port", o.Address, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && host == "" {
		return fmt.Errorf("Options.Address %q: %q is not a port", o.Address, port)
	}
	if host == "" && os.Getenv("POD_IP") == "" {
		return fmt.Errorf("Options.Address %q has no host, and POD_IP is not set, so that other members cannot reach this "+
			"one: set POD_IP through the downward API (status.podIP)", o.Address)
	}
	return nil
}

// Owner implements rota.Owner.
type Owner struct {
	Member, Address string
	Epoch           uint64
	Here            bool
}

// Owner implements rota.Rota.Owner.
func (r *Engine) Owner(ctx context.Context, kind schema.GroupKind, name types.NamespacedName) (Owner, error) {
	if err := r.checkOwnable(kind); err != nil {
		return Owner{}, err
	}
	o := r.owner(kind, name)
	if r.peers == nil || o.Member == "" {
		return o, nil
	}
	if o.Member == r.ID() {
		o.Address = r.peers.entry.Load().Address
		return o, nil
	}
	entry, err := r.peers.directory.Lookup(ctx, o.Member)
	o.Address = entry.Address
	return o, err
}

// checkOwnable returns an error unless owners of the kind's objects can be computed.
func (r *Engine) checkOwnable(kind schema.GroupKind) error {
	switch {
	case r.cfg.Key == slot.KeyUID:
		return fmt.Errorf("rota %s: with slot.KeyUID the name of an object does not determine its owner: use slot.KeyName "+
			"or slot.KeyNamespace", r.Name())
	case !slices.ContainsFunc(r.controllers.All(), func(c *controllers.Controller) bool { return c.Kind == kind }):
		return fmt.Errorf("rota %s: no sharded controller of this program is for %s, so its objects have no owners of their "+
			"own: set up the controller first; for a child, ask for the owner of its parent", r.Name(), kind)
	}
	return nil
}

// owner returns the owner of an object by the last table, without its address.
func (r *Engine) owner(kind schema.GroupKind, name types.NamespacedName) Owner {
	n, ok := r.share.Locate(kind, r.share.KeyOf(kind, name))
	if !ok || r.state.Gone() {
		return Owner{}
	}
	run := r.tableOf().At(n)
	o := Owner{Member: run.Owner, Epoch: run.Epoch}
	o.Here = o.Member == r.ID() && o.Member != "" && r.Owns(kind, name)
	return o
}

// Forward implements rota.Rota.Forward.
func (r *Engine) Forward(kind schema.GroupKind, next http.Handler,
	object func(*http.Request) (name types.NamespacedName, ok bool),
) (http.Handler, error) {
	if err := r.checkOwnable(kind); err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	if r.opts.Solo {
		return next, nil
	}
	if r.peers == nil {
		return nil, fmt.Errorf("rota %s: forward: members cannot reach each other: set Options.Address, such as \":9444\"",
			r.Name())
	}
	route := "requests about " + kind.String()
	f := peer.NewForwarder(peer.ForwarderEnv{
		Route: route, Next: next, Client: r.peers.client, Patience: forwardPatience,
		Gone: func(member string) bool { return !r.names(member) },
		Find: func(req *http.Request) peer.Place {
			name, ok := object(req)
			if !ok {
				return peer.Place{Here: true}
			}
			o := r.owner(kind, name)
			if o.Here || o.Member == r.ID() {
				return peer.Place{Here: o.Here}
			}
			return peer.Place{Member: o.Member}
		},
		Count: func(outcome string) { r.metrics.forwarded.WithLabelValues(outcome).Inc() },
		Log:   r.log,
	})
	if err := r.peers.server.Handle(route, f.Peers()); err != nil {
		return nil, fmt.Errorf("rota %s: forward: %w: give each kind one", r.Name(), err)
	}
	return f, nil
}

// forwardEvent takes an event about an object of another member, to forward it to the owner. It returns false if it
// cannot. It does not block.
func (r *Engine) forwardEvent(controller string, object types.NamespacedName) bool {
	p := r.peers
	if p == nil || r.cfg.Key == slot.KeyUID {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending) >= maxEvents || p.events.ShuttingDown() {
		return false
	}
	e := peerEvent{controller, object}
	p.pending[e] = struct{}{}
	p.events.Add(e)
	return true
}

// settled forgets an event that was forwarded or dropped.
func (p *peers) settled(e peerEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events.Forget(e)
	delete(p.pending, e)
}

// drop counts an event that does not reach the owner.
func (p *peers) drop(e peerEvent, cause error) {
	if c := p.rota.controllers.Named(e.Controller); c != nil {
		c.Drop(e.Object, cause)
	}
}

// sendEvents forwards events until the queue is shut down.
func (p *peers) sendEvents(ctx context.Context) {
	for {
		e, over := p.events.Get()
		if over {
			return
		}
		err := p.sendEvent(ctx, e)
		switch {
		case err == nil:
			p.settled(e)
		case p.events.NumRequeues(e) >= eventTries, p.events.ShuttingDown():
			p.settled(e)
			p.drop(e, err)
		default:
			p.events.AddRateLimited(e)
		}
		p.events.Done(e)
	}
}

func (p *peers) sendEvent(ctx context.Context, e peerEvent) error {
	c := p.rota.controllers.Named(e.Controller)
	if c == nil {
		return nil
	}
	if enqueue(c, e.Object) { // the slot has come here meanwhile
		return nil
	}
	o := p.rota.owner(c.Kind, e.Object)
	if o.Member == "" || o.Member == p.rota.ID() {
		return errors.New("the object's slot has no owner")
	}
	p.mu.Lock()
	until := p.silent[o.Member]
	p.mu.Unlock()
	if time.Now().Before(until) {
		return fmt.Errorf("member %s could not be reached", o.Member)
	}
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, forwardPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := p.client.Send(req, o.Member, eventsRoute)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		maps.DeleteFunc(p.silent, func(_ string, until time.Time) bool { return time.Now().After(until) })
		p.silent[o.Member] = time.Now().Add(silence)
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("member %s answers %s", o.Member, resp.Status)
	}
	p.rota.metrics.eventsForwarded.WithLabelValues(e.Controller).Inc()
	return nil
}

// serveEvent takes an event that another member forwards.
func (p *peers) serveEvent(w http.ResponseWriter, req *http.Request) {
	var e peerEvent
	if err := json.NewDecoder(http.MaxBytesReader(w, req.Body, 8<<10)).Decode(&e); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := p.rota.controllers.Named(e.Controller)
	switch {
	case c == nil:
		peer.Refuse(w, fmt.Sprintf("this member has no controller %q", e.Controller))
	case !enqueue(c, e.Object):
		peer.Refuse(w, "it does not own the object, or not yet")
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// enqueue enqueues an object if it is this member's.
func enqueue(c *controllers.Controller, object types.NamespacedName) bool {
	keeps := c.Work.Keeps(object)
	if keeps {
		c.Enqueue([]types.NamespacedName{object}, work.PriorityEvent)
	}
	return keeps
}

package workers

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/internal/protocol/table"
)

const (
	// refreshPeriod is the time between two searches for other dispatchers, and refreshSoon the shortest time.
	refreshPeriod = 2 * time.Second
	refreshSoon   = 200 * time.Millisecond
	// remembered is how long a dispatcher without a report is still asked, since it may be about to rejoin.
	remembered = time.Minute
	// answerTime bounds requests to another dispatcher, not counting the time that they may wait for keys.
	answerTime = 5 * time.Second
	// largest bounds answers of another dispatcher, in bytes: MaxKeys keys with the longest names.
	largest = 16 << 20
)

// Address is the address of a dispatcher.
type Address struct {
	// At is its Process.At, as in its member's report.
	At string
	// Out is true if its member is not in the rota's table: it has not joined yet, or has died. It has no keys. A dead
	// member's report may stay for long, until the API server's garbage collector deletes it.
	Out bool
}

// Reports returns a function that reads the addresses of a rota's dispatchers from its members' reports. See
// Options.Reports. table returns the rota's table, or nil if it is unknown.
func Reports(cfg *rest.Config, name types.NamespacedName, table func() *table.Table) (
	func(context.Context) ([]Address, error), error,
) {
	reports, err := coverage.NewReports(cfg, name.Namespace, name.Name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) ([]Address, error) {
		all, err := reports.Read(ctx)
		if all == nil && err != nil {
			return nil, err // other errors are about single reports, and logged by the members
		}
		t := table()
		var out []Address
		for _, r := range all {
			at := r.Setup[coverage.SettingDispatcher]
			if at == "" {
				continue
			}
			in := true
			if t != nil {
				_, in = t.Member(r.Member)
			}
			out = append(out, Address{At: at, Out: !in})
		}
		return out, nil
	}, nil
}

// peers are the other dispatchers of the tier.
type peers struct {
	o      Options
	scheme string // of all dispatchers' URLs
	found  func()

	// refreshing is held while the reports are read, and asking by requests that wait for that.
	refreshing, asking chan struct{}

	mu    sync.Mutex
	known map[Process]*peer
	// refreshed is when the reports were last read, negative before the first time. failed is the error.
	refreshed time.Duration
	failed    error
}

type peer struct {
	url string
	// seen is when it last had a report.
	seen time.Duration
	// reported is set if it had a report when these were last read, and its member was in the table.
	reported bool
	// failed is when it last failed to answer, or 0.
	failed time.Duration
}

// errSlow: another dispatcher does not answer in time.
var errSlow = errors.New("it does not answer in time")

func newPeers(o Options, found func()) *peers {
	scheme, _, _ := strings.Cut(o.URL, ":")
	return &peers{
		o: o, scheme: scheme, found: found, refreshing: make(chan struct{}, 1), asking: make(chan struct{}, maxAsking),
		known: map[Process]*peer{}, refreshed: -1,
	}
}

// run searches for dispatchers until ctx ends.
func (p *peers) run(ctx context.Context) {
	logged := ""
	for ctx.Err() == nil {
		err := p.refresh(ctx, p.o.Dispatcher.Now())
		switch {
		case err == nil:
			logged = ""
		case ctx.Err() == nil && err.Error() != logged:
			logged = err.Error()
			p.o.Logger.Error(err, "Cannot read the addresses of other dispatchers; trying again")
		}
		if await.Sleep(ctx, refreshPeriod) != nil {
			return
		}
	}
}

// refresh reads the reports, unless that was tried after since.
func (p *peers) refresh(ctx context.Context, since time.Duration) error {
	select {
	case p.refreshing <- struct{}{}:
		defer func() { <-p.refreshing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	last, failed := p.refreshed, p.failed
	p.mu.Unlock()
	if last >= since {
		return failed
	}
	if err := await.Sleep(ctx, last+refreshSoon-p.o.Dispatcher.Now()); err != nil {
		return err
	}
	begun := p.o.Dispatcher.Now()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	reports, err := p.o.Reports(ctx)
	if err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.refreshed, p.failed = begun, err
		return err
	}
	now := map[Process]peer{}
	for _, address := range reports {
		number, at, _ := strings.Cut(address.At, " ")
		var id Process
		b, err := hex.DecodeString(number)
		u, urlErr := url.Parse(at)
		if err != nil || len(b) != len(id) || urlErr != nil ||
			*u != (url.URL{Scheme: p.scheme, Host: u.Host}) || u.Host == "" {
			p.o.Logger.Info("The report of a dispatcher has an invalid address, or one with another scheme than this one's: it "+
				"is not used, since it would get this one's token", "address", address.At)
			continue
		}
		if copy(id[:], b); id != p.o.Process {
			now[id] = peer{url: strings.TrimSuffix(at, "/"), seen: begun, reported: !address.Out}
		}
	}
	fresh := false
	p.mu.Lock()
	p.refreshed, p.failed = begun, nil
	for id, k := range now {
		old := p.known[id]
		if k.reported && (old == nil || old.url != k.url || !old.reported) {
			fresh = true
		}
		if old != nil && old.url == k.url {
			k.failed = old.failed
		}
		p.known[id] = &k
	}
	for id, k := range p.known {
		if _, there := now[id]; there {
			continue
		}
		if k.reported = false; begun-k.seen > remembered {
			delete(p.known, id)
		}
	}
	p.mu.Unlock()
	if fresh {
		p.found()
	}
	return nil
}

// all returns the dispatchers with a report and in the table, in random order.
func (p *peers) all() []Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Process
	for id, k := range p.known {
		if k.reported {
			out = append(out, id)
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] }) // the randomness is for fairness
	return out
}

// has reports whether a process has a report and is in the table.
func (p *peers) has(id Process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.known[id]
	return k != nil && k.reported
}

// maxAsking is how many requests about unknown processes may wait for the reports to be read. Their tokens may be
// forged, and they occupy memory.
const maxAsking = 100

// missing returns the processes that cannot be asked, with the reason. A process without a report has ended, since it
// hands out nothing before it has one. The reports are read at most once.
func (p *peers) missing(ctx context.Context, all []Process) map[Process]error {
	unknown := slices.DeleteFunc(all, func(id Process) bool { return p.get(id) != nil })
	if len(unknown) == 0 {
		return nil
	}
	out, why := make(map[Process]error, len(unknown)), p.ask(ctx)
	for _, id := range unknown {
		switch {
		case p.get(id) != nil:
		case why != nil:
			out[id] = problem(wire.ProblemUnavailable, "cannot find the dispatcher that handed it out: %v", why)
		default:
			out[id] = problem(wire.ProblemEnded, "%s", hasEnded)
		}
	}
	return out
}

// ask reads the reports for a request.
func (p *peers) ask(ctx context.Context) error {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	default:
		return errors.New("too many requests are about dispatchers that are not known")
	}
	return p.refresh(ctx, p.o.Dispatcher.Now())
}

// hasEnded is the detail for a take whose dispatcher has ended.
const hasEnded = "the dispatcher that handed it out has ended, and the take with it"

// get returns a process's peer, or nil if it is unknown.
func (p *peers) get(id Process) *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.known[id]
	if k == nil {
		return nil
	}
	out := *k
	return &out
}

// send sends a request on behalf of a user to a process, and decodes the answer into out, unless that is nil. The error
// is meant for the user.
func (p *peers) send(ctx context.Context, id Process, user, path string, in, out any) error {
	if err := p.missing(ctx, []Process{id})[id]; err != nil {
		return err
	}
	at := p.get(id)
	if at == nil { // it was removed a moment ago
		return problem(wire.ProblemEnded, "%s", hasEnded)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, errSlow)
	defer cancel()
	return p.request(ctx, id, *at, user, path, in, out)
}

// answers records whether a process answered.
func (p *peers) answers(id Process, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.known[id]
	switch {
	case k == nil:
	case err == nil:
		k.failed = 0
	default:
		k.failed = p.o.Dispatcher.Now()
	}
}

// avoided is how long polls that do not wait skip a process that did not answer.
const avoided = 5 * time.Second

// answering returns the dispatchers of all that are expected to answer.
func (p *peers) answering() []Process {
	all := p.all()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(all, func(id Process) bool {
		k := p.known[id]
		return k == nil || k.failed > 0 && p.o.Dispatcher.Now()-k.failed < avoided
	})
}

func (p *peers) request(ctx context.Context, id Process, at peer, user, path string, in, out any) error {
	method, body := http.MethodPost, io.Reader(nil)
	if in == nil {
		method = http.MethodGet
	} else {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, at.url+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", wire.TypeJSON)
	r.Header.Set(headerFor, url.QueryEscape(user))
	answer, err := p.o.Client.Do(r)
	if ctx.Err() == nil || errors.Is(context.Cause(ctx), errSlow) {
		p.answers(id, err) // otherwise the worker has gone
	}
	if err != nil {
		if !at.reported {
			return problem(wire.ProblemEnded, "%s", hasEnded)
		}
		return problem(wire.ProblemUnavailable, "another dispatcher does not answer: %v", withoutURL(err))
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, largest))
	switch {
	case err != nil:
		return problem(wire.ProblemUnavailable, "another dispatcher broke off its answer: %v", err)
	case answer.StatusCode < http.StatusBadRequest:
		if out == nil || answer.StatusCode == http.StatusNoContent {
			return nil
		}
		if err := json.Unmarshal(text, out); err != nil {
			return problem(wire.ProblemUnavailable, "the answer of another dispatcher: %v", err)
		}
		return nil
	}
	var refusal wire.Problem
	_ = json.Unmarshal(text, &refusal)
	kind := strings.TrimPrefix(refusal.Type, wire.ProblemBase)
	switch kind {
	case wire.ProblemEnded, wire.ProblemInvalid, wire.ProblemForbidden, wire.ProblemUnknownKind:
		if answer.StatusCode == titles[kind].code && refusal.Detail != "" {
			return &access.Error{Problem: kind, Detail: refusal.Detail}
		}
	}
	p.o.Logger.Info("Another dispatcher refuses a request of this one", "dispatcher", at.url, "path", path,
		"status", answer.StatusCode, "detail", refusal.Detail)
	return problem(wire.ProblemUnavailable, "another dispatcher refuses this one: %d %s", answer.StatusCode, refusal.Title)
}

// withoutURL removes the URL from a Client's error: workers need not know where dispatchers are.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// take polls a process.
func (p *peers) take(ctx context.Context, id Process, user string, a keeper.Ask, wait time.Duration) (
	[]given, error,
) {
	at := p.get(id)
	if at == nil {
		return nil, fmt.Errorf("dispatcher %s has ended", id)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait+answerTime, errSlow)
	defer cancel()
	sent := p.o.Dispatcher.Now()
	var out wire.TakeResponse
	err := p.request(ctx, id, *at, user, wire.PathTake, wire.TakeRequest{
		Worker: a.Worker, Kinds: a.Kinds, Max: a.Max, WaitSeconds: wait.Seconds(), LengthSeconds: a.Length.Seconds(),
		Affine: a.Affine,
	}, &out)
	if err != nil {
		return nil, err
	}
	takes := make([]given, 0, len(out.Takes))
	for _, t := range out.Takes {
		takes = append(takes, given{Take: t, deadline: sent + time.Duration(t.ExpiresInSeconds*float64(time.Second))})
	}
	return takes, nil
}

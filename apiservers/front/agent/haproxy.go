package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/apiservers/front/haproxy"
)

// running changes the servers of a running HAProxy by its socket. A reload would do, too, but leaves the old process
// with all connections, and it no longer checks the servers: clients of a server that hangs would hang with it.
type running struct {
	front *front.Front
	admin string // the socket
	log   func(format string, args ...any)
	// process is the number of the process that answered last.
	process string
	// unready has the servers that say that they are not ready, and since when. Those that have for longer than leniency
	// (0: defaultLeniency) lose their connections if others are ready.
	unready  map[string]time.Time
	leniency time.Duration
}

// defaultLeniency is shorter than the time after which Kubernetes takes a node for lost whose kubelet cannot renew its
// Lease: 40 s at least, by default.
const defaultLeniency = 30 * time.Second

// sight is a server in one of the backends of a running HAProxy.
type sight struct {
	sessions int
	// up servers keep their connections. Those that are ready get new ones, too, unless their weight is 0. Those that are
	// unready say so.
	up, ready, unready bool
	maint              bool
	weight             int
}

// sights are the servers of a backend, by name.
type sights map[string]sight

// errOther means that HAProxy runs with another configuration than the front's, or with certificates from before.
var errOther = errors.New("HAProxy runs with another configuration or other certificates")

// apply brings the running HAProxy to the list. While servers that are gone still have connections it has to be called
// again, later. It does nothing but to return errOther if HAProxy's description is another.
func (h *running) apply(ctx context.Context, servers []front.Server, description string) error {
	info, err := haproxy.Ask(ctx, h.admin, "show info")
	if err != nil {
		return err
	}
	ours := false
	for line := range strings.Lines(string(info)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "description":
			ours = value == description
		case "Pid":
			h.process = value
		}
	}
	if !ours {
		return errOther
	}
	seen, err := h.look(ctx)
	if err != nil {
		return err
	}
	gone := maps.Clone(seen[front.Backend])
	maps.Copy(gone, seen[front.Unchecked])
	for _, s := range servers {
		id := front.ServerID(s.Address)
		delete(gone, id)
		for _, backend := range []string{front.Backend, front.Unchecked} {
			if err := h.bring(ctx, backend, s, seen[backend]); err != nil {
				return err
			}
		}
	}
	for _, address := range h.front.Static {
		id := front.StaticID(address)
		delete(gone, id)
		for _, backend := range []string{front.Backend, front.Unchecked} {
			if is := seen[backend][id]; is.maint {
				h.log("server %s/%s is in maintenance, and is used again", backend, id)
				if err := h.do(ctx, "%s", enable(backend, id, false)); err != nil {
					return err
				}
			}
		}
	}
	for id := range gone {
		if err := h.leave(ctx, id, seen); err != nil {
			return err
		}
	}
	if err := h.cut(ctx, seen); err != nil {
		return err
	}
	return h.lose(ctx, seen[front.Backend], time.Now())
}

// bring has a server that is in the list in a backend, with the right weight.
func (h *running) bring(ctx context.Context, backend string, s front.Server, seen sights) error {
	id := front.ServerID(s.Address)
	is, ok := seen[id]
	switch {
	case !ok:
		return h.add(ctx, backend, s)
	case is.maint: // an agent ended before it was in use, or somebody used the socket
		h.log("server %s/%s is in maintenance, and is used again", backend, id)
		return h.do(ctx, "%s", enable(backend, id, s.Draining))
	case s.Draining && is.weight != 0:
		h.log("server %s/%s drains, with %d connections", backend, id, is.sessions)
		return h.do(ctx, "set server %s/%s weight 0", backend, id)
	case !s.Draining && is.weight == 0:
		h.log("server %s/%s is used again", backend, id)
		return h.use(ctx, backend, id, is.sessions == 0)
	}
	return nil
}

// leave has a server that is no longer in the list drain, and removes it when it has no connections, or is down.
func (h *running) leave(ctx context.Context, id string, seen map[string]sights) error {
	main, rest := seen[front.Backend][id], seen[front.Unchecked][id]
	n := main.sessions + rest.sessions
	for _, backend := range []string{front.Backend, front.Unchecked} {
		is, ok := seen[backend][id]
		var err error
		switch {
		case !ok:
		case n == 0 || !main.up:
			if !is.maint {
				h.log("server %s/%s is gone", backend, id)
			}
			err = h.remove(ctx, backend, id)
		case is.weight != 0:
			h.log("server %s/%s is gone, and drains with %d connections", backend, id, is.sessions)
			err = h.do(ctx, "set server %s/%s weight 0", backend, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// anyReady reports whether any server gets new connections because it is ready, and whether one of the Deployment does.
func anyReady(seen sights) (ready, deployment bool) {
	for id, is := range seen {
		if is.ready && is.weight > 0 {
			ready, deployment = true, deployment || strings.HasPrefix(id, front.ServerIDPrefix)
		}
	}
	return ready, deployment
}

// lose ends the connections to servers that have not been ready for long, while others are. One that shuts down ends
// them itself. One that has lost its etcd alone does not, and its clients do not leave by themselves.
func (h *running) lose(ctx context.Context, seen sights, now time.Time) error {
	ready, _ := anyReady(seen)
	if h.unready == nil {
		h.unready = map[string]time.Time{}
	}
	for id := range h.unready {
		if !seen[id].unready {
			delete(h.unready, id)
		}
	}
	for id, is := range seen {
		if !is.unready {
			continue
		}
		since, again := h.unready[id]
		if !again {
			h.unready[id] = now
		}
		if again && ready && is.sessions > 0 && now.Sub(since) > cmp.Or(h.leniency, defaultLeniency) {
			h.log("server %s has not been ready for %v, and loses its %d connections, since others are", id,
				now.Sub(since).Round(time.Second), is.sessions)
			if err := h.do(ctx, "shutdown sessions server %s/%s", front.Backend, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// cut ends the connections in the backend without checks that the other one would have ended: to servers that are down,
// and to static ones when there is one of the Deployment. While no server is ready they stay.
func (h *running) cut(ctx context.Context, seen map[string]sights) error {
	ready, deployment := anyReady(seen[front.Backend])
	if !ready {
		return nil
	}
	for id, is := range seen[front.Unchecked] {
		static := !strings.HasPrefix(id, front.ServerIDPrefix)
		if is.sessions > 0 && (!seen[front.Backend][id].up || static && deployment) {
			h.log("server %s/%s loses its %d connections, since others are ready", front.Unchecked, id, is.sessions)
			if err := h.do(ctx, "shutdown sessions server %s/%s", front.Unchecked, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a server. With checks it gets connections once it has passed two: HAProxy believes a new one to be up, and
// would take all clients from the static servers at once.
func (h *running) add(ctx context.Context, backend string, s front.Server) error {
	id, line := front.ServerID(s.Address), "weight 0"
	if backend == front.Backend {
		h.log("server %s comes", s.Address)
		line = h.front.ServerLine(front.Server{Address: s.Address, Draining: true})
	}
	return h.do(ctx, "add server %s/%s %s %s; %s", backend, id, s.Address, line, enable(backend, id, s.Draining))
}

// enable are the commands, on one line, by which a server that is in maintenance is checked and gets connections.
func enable(backend, id string, draining bool) string {
	name := backend + "/" + id
	var commands []string
	if backend == front.Backend {
		commands = append(commands, "enable health "+name)
	}
	commands = append(commands, "enable server "+name)
	if !draining {
		if backend == front.Backend {
			commands = append(commands, "set server "+name+" health down")
		}
		commands = append(commands, "set server "+name+" weight 1")
	}
	return strings.Join(commands, "; ")
}

// use gives connections to a server that has none: as soon as it has passed two checks, if afresh is set.
func (h *running) use(ctx context.Context, backend, id string, afresh bool) error {
	if afresh && backend == front.Backend {
		if err := h.do(ctx, "set server %s/%s health down", backend, id); err != nil {
			return err
		}
	}
	return h.do(ctx, "set server %s/%s weight 1", backend, id)
}

// remove removes a server. One that HAProxy still has connections of stays, without new ones, and is removed later.
func (h *running) remove(ctx context.Context, backend, id string) error {
	if err := h.do(ctx, "set server %s/%s state maint; shutdown sessions server %[1]s/%[2]s", backend, id); err != nil {
		return err
	}
	err := h.do(ctx, "del server %s/%s", backend, id)
	if err != nil && strings.Contains(err.Error(), stillConnected) {
		return nil
	}
	return err
}

// stillConnected is in HAProxy's answer to `del server` while the last connections of a server end.
const stillConnected = "still has connections"

// look returns the servers of both backends.
func (h *running) look(ctx context.Context) (map[string]sights, error) {
	text, err := haproxy.Ask(ctx, h.admin, "show stat -1 4 -1")
	if err != nil {
		return nil, err
	}
	rows, err := haproxy.Table(text)
	if err != nil {
		return nil, err
	}
	seen := map[string]sights{front.Backend: {}, front.Unchecked: {}}
	for _, row := range rows {
		id, backend := row["svname"], seen[row["pxname"]]
		if backend == nil {
			continue
		}
		sessions, err1 := strconv.Atoi(row["scur"])
		weight, err2 := strconv.Atoi(row["uweight"])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("server %s in HAProxy, which must be 2.6 or newer: %w", id, err)
		}
		status := row["status"] // also DRAIN, NOLB, and "no check", with connections that go on
		maint := strings.HasPrefix(status, "MAINT")
		backend[id] = sight{sessions: sessions, weight: weight, maint: maint,
			up: !maint && !strings.HasPrefix(status, "DOWN"), ready: strings.HasPrefix(status, "UP"),
			unready: strings.HasPrefix(status, "NOLB")}
	}
	return seen, nil
}

// do sends commands, on one line, of which HAProxy answers nothing, or that it has done them.
func (h *running) do(ctx context.Context, format string, args ...any) error {
	command := fmt.Sprintf(format, args...)
	answer, err := haproxy.Ask(ctx, h.admin, command)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(answer)) {
		switch strings.TrimSpace(line) {
		case "", "New server registered.", "Server deleted.":
		default:
			return fmt.Errorf("HAProxy answers to `%s`: %s", command, strings.TrimSpace(string(answer)))
		}
	}
	return nil
}

// reload has HAProxy's master start a process with the file, while the old one keeps its connections.
func (h *running) reload(ctx context.Context) error {
	answer, err := haproxy.Ask(ctx, filepath.Join(h.front.RunDir, front.MasterSocket), "reload")
	if err != nil {
		return err
	}
	return reloaded(string(answer))
}

// reloaded reads the answer to `reload`. Since 2.7 it begins with Success=0 or 1, and has HAProxy's messages; before,
// there is none.
func reloaded(answer string) error {
	if first, rest, _ := strings.Cut(answer, "\n"); strings.TrimSpace(first) == "Success=0" {
		return fmt.Errorf("HAProxy does not take its new configuration, and goes on with the old one: %s",
			strings.Join(strings.Fields(strings.TrimLeft(rest, "-\n")), " "))
	}
	return nil
}

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

// running changes the servers of a running HAProxy over its socket. A reload would also work, but it leaves the old
// process with all its connections and without checks, so clients of a server that hangs would hang.
type running struct {
	front *front.Front
	admin string // the socket
	log   func(format string, args ...any)
	// process is the number of the process that last answered.
	process string
	// unready are the servers that report that they are not ready, with the time since when. After leniency (0 means
	// defaultLeniency) they lose their connections if other servers are ready.
	unready  map[string]time.Time
	leniency time.Duration
}

// defaultLeniency is shorter than the time after which Kubernetes considers a node lost whose kubelet cannot renew its
// Lease: at least 40 s, by default.
const defaultLeniency = 30 * time.Second

// sight is a server in one of the backends of a running HAProxy.
type sight struct {
	sessions int
	// Servers that are up keep their connections. Those that are ready also get new ones, unless their weight is 0. Those
	// that are unready report that themselves.
	up, ready, unready bool
	maint              bool
	weight             int
}

// sights are the servers of a backend, by name.
type sights map[string]sight

// errOther means that HAProxy runs with another configuration than the front's, or with old certificates.
var errOther = errors.New("HAProxy runs with another configuration or other certificates")

// apply brings the running HAProxy in line with the list. While removed servers still have connections, it must be
// called again later. If HAProxy's description differs, it only returns errOther.
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

// bring adds a server of the list to a backend, or sets its weight.
func (h *running) bring(ctx context.Context, backend string, s front.Server, seen sights) error {
	id := front.ServerID(s.Address)
	is, ok := seen[id]
	switch {
	case !ok:
		return h.add(ctx, backend, s)
	case is.maint: // an agent ended before it was in use, or the socket was used by hand
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

// leave drains a server that is no longer in the list, and removes it once it has no connections or is down.
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

// anyReady reports whether any server gets new connections because it is ready, and whether a server of the Deployment
// does.
func anyReady(seen sights) (ready, deployment bool) {
	for id, is := range seen {
		if is.ready && is.weight > 0 {
			ready, deployment = true, deployment || strings.HasPrefix(id, front.ServerIDPrefix)
		}
	}
	return ready, deployment
}

// lose closes connections to servers that have not been ready for a while, if others are. A server that shuts down
// closes its own. A server that has only lost its etcd does not, and its clients do not leave.
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

// cut closes connections in the backend without checks that the other backend would have closed: to servers that are
// down, and to static ones once the Deployment has a server. While no server is ready, they stay.
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

// add adds a server. With checks, it gets connections once it has passed two: HAProxy considers a new server up, and
// would move all clients from the static servers at once.
func (h *running) add(ctx context.Context, backend string, s front.Server) error {
	id, line := front.ServerID(s.Address), "weight 0"
	if backend == front.Backend {
		h.log("server %s comes", s.Address)
		line = h.front.ServerLine(front.Server{Address: s.Address, Draining: true})
	}
	return h.do(ctx, "add server %s/%s %s %s; %s", backend, id, s.Address, line, enable(backend, id, s.Draining))
}

// enable returns the commands, on one line, that start the checks of a server in maintenance and give it connections.
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

// use gives connections to a server without any. With afresh, it waits until the server has passed two checks.
func (h *running) use(ctx context.Context, backend, id string, afresh bool) error {
	if afresh && backend == front.Backend {
		if err := h.do(ctx, "set server %s/%s health down", backend, id); err != nil {
			return err
		}
	}
	return h.do(ctx, "set server %s/%s weight 1", backend, id)
}

// remove removes a server. If HAProxy still has connections to it, it stays without new ones and is removed later.
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

// stillConnected is in HAProxy's answer to `del server` while the server's last connections end.
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
		status := row["status"] // also DRAIN, NOLB, and "no check", whose connections continue
		maint := strings.HasPrefix(status, "MAINT")
		backend[id] = sight{sessions: sessions, weight: weight, maint: maint,
			up: !maint && !strings.HasPrefix(status, "DOWN"), ready: strings.HasPrefix(status, "UP"),
			unready: strings.HasPrefix(status, "NOLB")}
	}
	return seen, nil
}

// do sends commands on one line. HAProxy must answer nothing, or that it has done them.
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

// reload makes HAProxy's master start a process with the new file, while the old one keeps its connections.
func (h *running) reload(ctx context.Context) error {
	answer, err := haproxy.Ask(ctx, filepath.Join(h.front.RunDir, front.MasterSocket), "reload")
	if err != nil {
		return err
	}
	return reloaded(string(answer))
}

// reloaded parses the answer to `reload`. Since HAProxy 2.7 it starts with Success=0 or 1, followed by messages.
// Before, it is empty.
func reloaded(answer string) error {
	if first, rest, _ := strings.Cut(answer, "\n"); strings.TrimSpace(first) == "Success=0" {
		return fmt.Errorf("HAProxy does not take its new configuration, and goes on with the old one: %s",
			strings.Join(strings.Fields(strings.TrimLeft(rest, "-\n")), " "))
	}
	return nil
}

package agent

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/haproxy"
	"github.com/rota-dev/rota/internal/proxy"
)

// running changes the servers of a running HAProxy by its socket. A reload would do, too, but leaves the old process
// with all connections, and it no longer checks the servers: clients of a server that hangs would hang with it.
type running struct {
	front *proxy.Front
	admin string // the socket
	log   func(format string, args ...any)
}

// sight is a server of the Deployment in a running HAProxy.
type sight struct {
	sessions int
	up       bool
	maint    bool
	weight   int
}

// errOther means that HAProxy runs with another configuration than the front's, or with certificates from before.
var errOther = errors.New("HAProxy runs with another configuration or other certificates")

// apply brings the running HAProxy to the list. It reports whether servers that are gone still have connections; then
// apply has to be called again, later. It does nothing but to return errOther if HAProxy's description is another.
func (h *running) apply(ctx context.Context, servers []proxy.Server, description string) (later bool, err error) {
	info, err := haproxy.Ask(ctx, h.admin, "show info")
	if err != nil {
		return false, err
	}
	if !slices.Contains(strings.Split(string(info), "\n"), "description: "+description) {
		return false, errOther
	}
	seen, err := h.look(ctx)
	if err != nil {
		return false, err
	}
	for _, s := range servers {
		id := proxy.ServerID(s.Address)
		is, ok := seen[id]
		delete(seen, id)
		switch {
		case !ok:
			err = h.add(ctx, s)
		case is.maint: // an agent ended before it was in use, or somebody used the socket
			h.log("server %s is in maintenance, and is used again", s.Address)
			err = h.do(ctx, "%s", h.enable(s))
		case s.Draining && is.weight != 0:
			h.log("server %s drains, with %d connections", s.Address, is.sessions)
			err = h.do(ctx, "set server %s/%s weight 0", proxy.Backend, id)
		case !s.Draining && is.weight == 0:
			h.log("server %s is used again", s.Address)
			err = h.use(ctx, id, is.sessions == 0)
		}
		if err != nil {
			return false, err
		}
	}
	for id, is := range seen {
		if is.sessions > 0 && is.up {
			later = true
			if is.weight != 0 {
				h.log("server %s is gone, and drains with %d connections", id, is.sessions)
				err = h.do(ctx, "set server %s/%s weight 0", proxy.Backend, id)
			}
		} else {
			h.log("server %s is gone", id)
			err = h.remove(ctx, id)
		}
		if err != nil {
			return false, err
		}
	}
	return later, nil
}

// add adds a server. It gets connections once it has passed two checks: HAProxy believes a new one to be up, and would
// take all clients from the static servers at once.
func (h *running) add(ctx context.Context, s proxy.Server) error {
	id := proxy.ServerID(s.Address)
	h.log("server %s comes", s.Address)
	return h.do(ctx, "add server %s/%s %s %s; %s", proxy.Backend, id, s.Address,
		h.front.ServerLine(proxy.Server{Address: s.Address, Draining: true}), h.enable(s))
}

// enable are the commands, on one line, by which a server that is in maintenance is checked and gets connections.
func (h *running) enable(s proxy.Server) string {
	name := proxy.Backend + "/" + proxy.ServerID(s.Address)
	commands := []string{"enable health " + name, "enable server " + name}
	if !s.Draining {
		commands = append(commands, "set server "+name+" health down", "set server "+name+" weight 1")
	}
	return strings.Join(commands, "; ")
}

// use gives connections to a server that has none: as soon as it has passed two checks, if afresh is set.
func (h *running) use(ctx context.Context, id string, afresh bool) error {
	if afresh {
		if err := h.do(ctx, "set server %s/%s health down", proxy.Backend, id); err != nil {
			return err
		}
	}
	return h.do(ctx, "set server %s/%s weight 1", proxy.Backend, id)
}

func (h *running) remove(ctx context.Context, id string) error {
	if err := h.do(ctx, "set server %s/%s state maint", proxy.Backend, id); err != nil {
		return err
	}
	return h.do(ctx, "del server %s/%s", proxy.Backend, id)
}

// look returns the servers of the Deployment, by name.
func (h *running) look(ctx context.Context) (map[string]sight, error) {
	text, err := haproxy.Ask(ctx, h.admin, fmt.Sprintf("show stat %s 4 -1", proxy.Backend))
	if err != nil {
		return nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("# ")))).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("HAProxy answers to `show stat`: %q: %w", text, err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	for _, name := range []string{"svname", "scur", "status", "uweight"} {
		if _, ok := column[name]; !ok {
			return nil, fmt.Errorf("HAProxy has no %s in `show stat`: it is older than 2.6", name)
		}
	}
	seen := map[string]sight{}
	for _, row := range rows[1:] {
		id := row[column["svname"]]
		if !strings.HasPrefix(id, proxy.ServerIDPrefix) {
			continue
		}
		sessions, err1 := strconv.Atoi(row[column["scur"]])
		weight, err2 := strconv.Atoi(row[column["uweight"]])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("server %s in HAProxy: %w", id, err)
		}
		status := row[column["status"]] // also DRAIN and NOLB, with connections that go on
		maint := strings.HasPrefix(status, "MAINT")
		seen[id] = sight{sessions: sessions, weight: weight, maint: maint, up: !maint && !strings.HasPrefix(status, "DOWN")}
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
	answer, err := haproxy.Ask(ctx, filepath.Join(h.front.RunDir, proxy.MasterSocket), "reload")
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

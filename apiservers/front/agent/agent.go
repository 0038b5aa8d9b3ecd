// Package agent keeps the servers of a front current, from the EndpointSlices of the API servers' Service. It runs
// beside the proxy on each host.
//
// It reads the slices through the front itself, and through the static servers if the front does not answer. Without
// any answer, the proxy uses the static servers and the last known ones. The agent writes every change to disk first.
package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rota-dev/rota/apiservers/front"
)

const (
	// settle is how long changes are collected, since a slice is often written several times in a row.
	settle = 100 * time.Millisecond
	// again is the time between two checks of HAProxy: for removed servers that still have connections, and in case
	// HAProxy did not answer.
	again = 2 * time.Second
	// reloadLimit is the longest time between two reloads when earlier ones did not help. The first wait is again.
	reloadLimit = time.Minute
	// patience is how many times in a row HAProxy may refuse a change before it is reloaded instead.
	patience = 5
	// inVain is how many reloads may bring up a HAProxy whose description is still wrong.
	inVain = 3
)

// Options configure Run.
type Options struct {
	// Dir is the folder with front.yaml.
	Dir string
	// Kubeconfig is a file with credentials for reading EndpointSlices. Its server is not used. Run waits for the file,
	// since a host has none before it has joined its cluster, and rereads it when it changes.
	Kubeconfig string
	// Log is called with a line for each event, from one goroutine at a time.
	Log func(format string, args ...any)
}

// agent is the state of Run. Only one goroutine uses it.
type agent struct {
	front      *front.Front
	dir        string
	kubeconfig string
	log        func(format string, args ...any)
	haproxy    *running // nil with Envoy

	servers []front.Server
	// certificates is a digest of the files that the proxy reads, and credentials a digest of the kubeconfig in use.
	certificates, credentials string
	// unsaved is set if the files on disk are outdated, so that a proxy started now would use an old list.
	unsaved bool

	// refused is how many times in a row HAProxy has refused a change.
	refused int
	// There is no reload before noReload. pause is the wait after the next reload.
	noReload time.Time
	pause    time.Duration
	// stray counts reloads after which another process answered, but its description was still not the wanted one. process
	// is the process that answered before the last reload.
	stray           int
	wanted, process string

	// Each field is the last logged message of its kind, so that it is logged once. It is "" if all is well.
	logged     string // of HAProxy
	unfollowed string // of the EndpointSlices
	unwritten  string // of the files
	left       string // what Admit refused
	unread     string // why certificates could not be read
	lacks      string // what the Service lacks
}

// Run keeps the servers of a front current until ctx ends, and then returns nil. It returns an error only if it cannot
// start.
func Run(ctx context.Context, o Options) error {
	path := filepath.Join(o.Dir, front.FrontFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the front's description: %w", err)
	}
	f, err := front.ParseFront(path, text)
	if err != nil {
		return err
	}
	if err := isAt(f, o.Dir); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := f.Circle(ownAddresses()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	a := &agent{front: f, dir: o.Dir, kubeconfig: o.Kubeconfig, log: o.Log}
	if f.Proxy == front.HAProxy {
		a.haproxy = &running{front: f, admin: filepath.Join(f.RunDir, front.AdminSocket), log: o.Log}
	}
	servers, err := readKnown(o.Dir)
	if err != nil {
		a.log("%v", err)
	}
	if err := a.first(ctx, servers); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if client := a.connect(ctx); client != nil {
			if err := a.follow(ctx, client); err != nil {
				return err
			}
		}
	}
	return nil
}

// isAt returns an error if the front's description is in another folder than the one that it names: the proxy would
// read its files from there, where another front's files may be.
func isAt(f *front.Front, dir string) error {
	is, err := os.Stat(dir)
	if err != nil {
		return err
	}
	named, err := os.Stat(f.Dir)
	if err != nil {
		return fmt.Errorf("the folder that it names as dir: %w", err)
	}
	if !os.SameFile(is, named) {
		return fmt.Errorf("it names %s as dir, and is in %s, so that the proxy would read the files of another front; a "+
			"host has one front, or each has its own dir, runDir, listen and admin", f.Dir, dir)
	}
	return nil
}

// first writes the servers known from before, so that the proxy can start.
func (a *agent) first(ctx context.Context, servers []front.Server) error {
	a.servers = a.admit(servers)
	a.readCertificates()
	if err := a.write(); err != nil {
		return err
	}
	if a.front.Proxy == front.Envoy {
		if err := a.bootstrap(); err != nil {
			return err
		}
	}
	a.log("the front has %d servers known from before, and %d static ones", len(a.servers), len(a.front.Static))
	a.apply(ctx)
	return nil
}

// bootstrap writes envoy.yaml, which Envoy reads when it starts.
func (a *agent) bootstrap() error {
	text, err := a.front.Envoy()
	if err != nil {
		return err
	}
	changed, err := replace(filepath.Join(a.dir, front.EnvoyFile), text)
	if changed {
		a.log("%s has changed: restart Envoy, so that it reads it", front.EnvoyFile)
	}
	return err
}

// readCertificates reports whether the files that the proxy reads have changed. A file that cannot be read counts as
// unchanged, since HAProxy would not accept it either.
func (a *agent) readCertificates() (changed bool) {
	all := sha256.New()
	for _, path := range []string{a.front.CA, a.front.Client} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			if text := err.Error(); text != a.unread {
				a.log("the proxy's certificates: %v", err)
				a.unread = text
			}
			return false
		}
		_, _ = fmt.Fprintf(all, "%d %s", len(text), text) // a hash takes everything
	}
	was := a.certificates
	a.unread = ""
	a.certificates = hex.EncodeToString(all.Sum(nil))
	return was != a.certificates
}

// update handles a list from the API server.
func (a *agent) update(ctx context.Context, servers []front.Server) {
	servers = a.admit(servers)
	if slices.Equal(servers, a.servers) {
		return
	}
	a.log("service %s has %d servers: %v", a.front.Service, len(servers), servers)
	a.servers = servers
	a.save()
	a.apply(ctx)
}

// tick handles changes without events: renewed certificates, a disk that has space again, and a restarted HAProxy.
func (a *agent) tick(ctx context.Context) {
	renewed := a.readCertificates()
	if renewed && a.haproxy == nil {
		a.log("certificates have changed: restart Envoy, so that it reads them")
	}
	if renewed || a.unsaved {
		a.save()
	}
	a.apply(ctx)
}

// save writes the list and the proxy's configuration. If the disk refuses, tick tries again. HAProxy still gets the
// list, over its socket.
func (a *agent) save() {
	// The list first: after a crash here, the next agent writes the configuration from it.
	err := writeKnown(a.dir, a.servers)
	if err == nil {
		err = a.write()
	}
	a.unsaved = err != nil
	switch {
	case err != nil && gist(err) != a.unwritten:
		a.unwritten = gist(err)
		effect := "HAProxy gets them by its socket, but is not reloaded"
		if a.haproxy == nil {
			effect = "Envoy does not get them"
		}
		a.log("the servers are not on disk, so %s: %v", effect, err)
	case err == nil && a.unwritten != "":
		a.unwritten = ""
		a.log("the servers are on disk again")
	}
}

// admit removes the servers that the front cannot use, and logs them.
func (a *agent) admit(servers []front.Server) []front.Server {
	admitted, refused := a.front.Admit(servers, ownAddresses())
	err := errors.Join(refused...)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != a.left && err != nil {
		a.log("%v", err)
	}
	a.left = text
	return admitted
}

// write writes the file that changes with the servers.
func (a *agent) write() error {
	file, err := a.front.Current(a.servers, a.certificates)
	if err != nil {
		return err
	}
	_, err = replace(filepath.Join(a.dir, file.Path), file.Text)
	return err
}

// apply brings a running HAProxy in line with the list. Envoy watches its file.
func (a *agent) apply(ctx context.Context) {
	if a.haproxy == nil {
		return
	}
	err := a.haproxy.apply(ctx, a.servers, a.front.Description(a.certificates))
	var op *net.OpError
	switch {
	case err == nil:
		a.logged, a.refused, a.pause, a.stray, a.process = "", 0, 0, 0, ""
	case errors.As(err, &op) && op.Op == "dial" || ctx.Err() != nil:
		// It is not running, and will read the file when it starts.
	case errors.Is(err, errOther):
		err = a.reload(ctx, err)
	default:
		if a.refused++; a.refused >= patience {
			err = a.reload(ctx, err)
		}
	}
	// Keep the last error, so that it is logged once.
	if err != nil && ctx.Err() == nil && err.Error() != a.logged {
		a.logged = err.Error()
		a.log("%v", err)
	}
}

// reload makes HAProxy reread its file. It returns why, with the result. It returns nil if it is too early for a
// reload, or the file is not on disk.
func (a *agent) reload(ctx context.Context, why error) error {
	if time.Now().Before(a.noReload) {
		return nil // the new process needs a while to answer
	}
	if wanted := a.front.Description(a.certificates); wanted != a.wanted {
		a.wanted, a.stray, a.process = wanted, 0, ""
	}
	if errors.Is(why, errOther) && a.process != "" && a.process != a.haproxy.process {
		a.stray++
	}
	if a.stray >= inVain {
		return fmt.Errorf("HAProxy was reloaded %d times, but the one at %s still has another front's configuration: "+
			"another front also has runDir %s, or HAProxy does not read %s; it is not reloaded again until %s or "+
			"certificates change", inVain, a.haproxy.admin, a.front.RunDir,
			filepath.Join(a.front.Dir, front.HAProxyFile), front.FrontFile)
	}
	// The file may have been replaced.
	if a.save(); a.unsaved {
		return nil
	}
	a.pause = min(max(2*a.pause, again), reloadLimit)
	a.noReload = time.Now().Add(a.pause)
	if err := a.haproxy.reload(ctx); err != nil {
		return errors.Join(why, fmt.Errorf("reload: %w", err))
	}
	a.refused, a.process = 0, a.haproxy.process
	return fmt.Errorf("HAProxy was reloaded: %w", why)
}

// ownAddresses are this host's addresses.
func ownAddresses() []netip.Addr {
	all, _ := net.InterfaceAddrs()
	var own []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().Unmap())
		}
	}
	return own
}

package front

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"
)

// Files and names of HAProxy.
const (
	HAProxyFile = "haproxy.cfg"
	// Backend is the name of the backend with all API servers. Unchecked is the backend with the same servers without
	// checks. It gets new connections while no server of Backend passes its checks.
	Backend   = "apiservers"
	Unchecked = "unchecked"
	// AdminSocket and MasterSocket are in RunDir. The agent changes servers over the first, and reloads over the second.
	AdminSocket  = "admin.sock"
	MasterSocket = "master.sock"
)

// HAProxy returns the text of haproxy.cfg. servers must be as Admit returns them. certificates are as for Description.
func (f *Front) HAProxy(servers []Server, certificates string) []byte {
	return f.haproxy(servers, f.Description(certificates))
}

// Description is a word that shows which configuration a running HAProxy has read: everything in haproxy.cfg except the
// servers of the Deployment, and certificates, a digest of the files that haproxy.cfg refers to. certificates is "" if
// these files were not read.
func (f *Front) Description(certificates string) string {
	sum := sha256.Sum256(fmt.Appendf(f.haproxy(nil, ""), "%s %s", f.ServerLine(Server{}), certificates))
	return "rota-front-" + hex.EncodeToString(sum[:8])
}

func (f *Front) haproxy(servers []Server, description string) []byte {
	return render(HAProxyFile, f.view(servers, description))
}

// ServerLine is the text after the address of a server of the Deployment, in the file and in `add server`. Draining
// servers have weight 0.
func (f *Front) ServerLine(s Server) string {
	line := s.weight() + " " + f.check() + " on-marked-up shutdown-backup-sessions"
	if f.SlowStart.Duration > 0 {
		line += " slowstart " + span(f.SlowStart.Duration)
	}
	return line
}

func (s Server) weight() string {
	if s.Draining {
		return "weight 0"
	}
	return "weight 1"
}

// check returns the options for checks of a server: at intervals, and at once when two clients could not connect to it.
// When it is down, clients lose their connections to it.
func (f *Front) check() string {
	line := fmt.Sprintf("check check-ssl verify required ca-file %s check-sni %s verifyhost %[2]s", f.CA, f.ServerName)
	if f.Client != "" {
		line += " crt " + f.Client
	}
	return line + fmt.Sprintf(" inter %s fastinter 100ms downinter %[1]s fall 2 rise 2 "+
		"observe layer4 error-limit 2 on-error sudden-death on-marked-down shutdown-sessions",
		span(f.Interval.Duration))
}

// ServerIDPrefix is the prefix of the names of the Deployment's servers in HAProxy.
const ServerIDPrefix = "deployment_"

// ServerID is the name of a server of the Deployment in HAProxy.
func ServerID(address string) string { return ServerIDPrefix + flat(address) }

// StaticID is the name of a static server in HAProxy.
func StaticID(address string) string { return "static_" + flat(address) }

// flat turns an address into a name.
func flat(address string) string {
	a, _ := parseAddress(address)
	return fmt.Sprintf("%s_%d", a.Addr(), a.Port())
}

// bind formats an address to listen on. Brackets are for Envoy and people: HAProxy takes the last colon.
func bind(address string) string {
	a, _ := parseAddress(address)
	if a.Addr().Is6() {
		return "ipv6@" + netip.AddrPortFrom(a.Addr(), a.Port()).String()
	}
	return a.String()
}

// span formats a duration in milliseconds, which all versions of HAProxy accept.
func span(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

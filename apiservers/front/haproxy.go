package front

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Files and names of HAProxy.
const (
	HAProxyFile = "haproxy.cfg"
	// Backend is the name of the backend with all API servers, and Unchecked that of the one with the same servers, but
	// without checks, which gets new connections while no server of the first passes its checks.
	Backend   = "apiservers"
	Unchecked = "unchecked"
	// AdminSocket and MasterSocket are in RunDir. The agent changes servers by the first, and reloads by the second.
	AdminSocket  = "admin.sock"
	MasterSocket = "master.sock"
)

const haproxyHead = `# The proxy before the API servers. The agent of rota front replaces this file when
# endpoints change; front.yaml has what stays.

global
    # What this file and the certificates have without the servers of the Deployment: the agent reloads when it changes.
    description %[9]s
    # Some more than clients may have, for metrics and health.
    maxconn %[10]d
    stats socket %[2]s/%[3]s mode 600 level admin
    # After a reload the old process keeps its connections for so long.
    hard-stop-after 1h

defaults
    # When nothing is sent for so long, also not a watch's ping, the connection ends.
    timeout client %[4]s
    timeout server %[4]s
    timeout tunnel %[4]s
    timeout client-fin 30s
    timeout server-fin 30s
    # A check has the first for TCP and TLS, and then the second for the answer.
    timeout connect %[5]s
    timeout check %[11]s
    timeout queue 5s
    timeout http-request 5s
    # A server that refuses a connection is not asked again: the next one is.
    retries 3
    option redispatch 1
    # Peers that are gone without a word are noticed within 25 s.
    option clitcpka
    option srvtcpka
    clitcpka-idle 10s
    clitcpka-intvl 5s
    clitcpka-cnt 3
    srvtcpka-idle 10s
    srvtcpka-intvl 5s
    srvtcpka-cnt 3

# Passes TCP through: TLS is between client and API server.
frontend clients
    mode tcp
    bind %[6]s
    maxconn %[1]d
    # While no server says that it is ready, for example because etcd has no leader, they still answer.
    use_backend %[12]s if { nbsrv(%[7]s) eq 0 }
    default_backend %[7]s

backend %[7]s
    mode tcp
    balance leastconn
    # All static servers stand in, not only the first.
    option allbackups
    option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host %[8]s hdr Connection close
    # A server that answers that it is not ready keeps its connections, and gets no new ones: it shuts down, or etcd is
    # away, for all servers at once. Only one that does not answer is down.
    http-check expect status 200 error-status L7OKC
`

const haproxyUnchecked = `
# The same servers without checks. The agent ends connections here that the other backend would have ended.
backend %s
    mode tcp
    balance roundrobin
`

const haproxyTail = `
# Metrics and health of this proxy: /metrics, /healthz while it runs, /readyz while it has an API server.
frontend admin
    mode http
    bind %s
    http-request return status 200 if { path /healthz }
    http-request return status 200 if { path /readyz } { nbsrv(%[2]s) gt 0 }
    http-request return status 503 if { path /readyz }
    http-request use-service prometheus-exporter if { path /metrics }
    http-request return status 404
`

// HAProxy is the text of haproxy.cfg. servers are as Admit returns them; certificates as for Description.
func (f *Front) HAProxy(servers []Server, certificates string) []byte {
	return f.haproxy(servers, f.Description(certificates))
}

// Description is the one word by which a running HAProxy tells what it has read: all of haproxy.cfg but the servers of
// the Deployment, and certificates, a digest of the files that haproxy.cfg names. "" if nobody has read those.
func (f *Front) Description(certificates string) string {
	sum := sha256.Sum256(fmt.Appendf(f.haproxy(nil, ""), "%s %s", f.ServerLine(Server{}), certificates))
	return "rota-front-" + hex.EncodeToString(sum[:8])
}

func (f *Front) haproxy(servers []Server, description string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, haproxyHead, f.MaxConnections, f.RunDir, AdminSocket, span(f.IdleTimeout.Duration),
		span(f.Timeout.Duration), bind(f.Listen), Backend, f.ServerName, description, f.MaxConnections+100,
		span(f.AnswerTimeout.Duration), Unchecked)
	for _, s := range servers {
		fmt.Fprintf(&b, "    server %s %s %s\n", ServerID(s.Address), s.Address, f.ServerLine(s))
	}
	for _, address := range f.Static {
		fmt.Fprintf(&b, "    server %s %s backup %s\n", StaticID(address), address, f.check())
	}
	fmt.Fprintf(&b, haproxyUnchecked, Unchecked)
	for _, s := range servers {
		fmt.Fprintf(&b, "    server %s %s %s\n", ServerID(s.Address), s.Address, s.weight())
	}
	for _, address := range f.Static {
		fmt.Fprintf(&b, "    server %s %s\n", StaticID(address), address)
	}
	fmt.Fprintf(&b, haproxyTail, bind(f.Admin), Backend)
	return []byte(b.String())
}

// ServerLine is what follows the address of a server of the Deployment, in the file and in `add server`. Draining
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

// check is how a server is checked: every now and then, and at once when two clients could not connect to it. When it
// is down, clients lose their connections to it.
func (f *Front) check() string {
	line := fmt.Sprintf("check check-ssl verify required ca-file %s check-sni %s verifyhost %[2]s", f.CA, f.ServerName)
	if f.Client != "" {
		line += " crt " + f.Client
	}
	return line + fmt.Sprintf(" inter %s fastinter 100ms downinter %[1]s fall 2 rise 2 "+
		"observe layer4 error-limit 2 on-error sudden-death on-marked-down shutdown-sessions",
		span(f.Interval.Duration))
}

// ServerIDPrefix begins the names of the Deployment's servers in HAProxy.
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

// bind writes an address to listen on. Brackets are for Envoy and people: HAProxy takes the last colon.
func bind(address string) string {
	a, _ := parseAddress(address)
	if a.Addr().Is6() {
		return "ipv6@" + netip.AddrPortFrom(a.Addr(), a.Port()).String()
	}
	return a.String()
}

// span writes a duration in milliseconds, which all of HAProxy's versions read.
func span(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

package deployment

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// managed are flags that this package sets, so users cannot.
var managed = []string{
	"advertise-address", "bind-address", "endpoint-reconciler-type", "apiserver-count", "cert-dir",
	"peer-advertise-ip", "peer-advertise-port",
}

// Managed returns the flags that are not allowed in Options.Set and Unset.
func Managed() []string { return slices.Clone(managed) }

// repeatable are flags that take one value at a time: several values are several flags. Other lists are
// comma-separated.
var repeatable = []string{
	"service-account-key-file", "service-account-issuer", "tls-sni-cert-key", "oidc-required-claim",
}

// Repeatable reports whether a flag of kube-apiserver may have several values in Options.Set.
func Repeatable(name string) bool { return slices.Contains(repeatable, name) }

const (
	defaultPort = 6443
	// shutdownDelay is how long an API server continues after it was asked to end, while /readyz already fails. A proxy
	// must have noticed by then.
	shutdownDelay = 15 * time.Second
	// watchGrace is how long the API server then takes to end its watches, at a rate that its peers can handle.
	watchGrace = 15 * time.Second
	// requestTimeout is the default of --request-timeout.
	requestTimeout = 60 * time.Second
	// goaway is the fraction of requests after which a client is asked to reconnect.
	goaway = "0.001"
)

// checkFlags refuses flags that cannot work away from the static Pod's host.
func (p *planner) checkFlags() {
	p.checkPort()
	p.checkEtcd()
	if log := p.line.Value("audit-log-path"); log != "" && log != "-" {
		p.refuse("--audit-log-path="+log, "give --set audit-log-path=- and collect the container's output, or use "+
			"--audit-webhook-config-file and give --unset audit-log-path",
			"the audit log is a file on the host, and would be lost with each Pod")
	}
	if !p.line.Bool("anonymous-auth", true) {
		p.refuse("--anonymous-auth=false", "use --authentication-config with anonymous access to /livez, /readyz and "+
			"/healthz only", "probes of the kubelet and checks of proxies have no credentials: they get 401")
	}
	for _, name := range []string{"service-account-signing-endpoint", "debug-socket-path"} {
		if p.line.Has(name) {
			p.refuse("--"+name+"="+p.line.Value(name), "use a key file, or keep this API server static; "+
				"give --unset "+name+" if it is not needed", "it is a socket on the host")
		}
	}
	for _, f := range []struct{ name, effect string }{
		{"tls-cert-file", "each Pod would make its own certificate, which no client trusts"},
		{"client-ca-file", "no client certificate would be accepted"},
	} {
		if p.line.Value(f.name) == "" {
			p.refuse("--"+f.name, "add it to the manifest", "it is missing, so %s", f.effect)
		}
	}
	for _, pair := range pairs {
		cert, key := p.line.Value(pair.cert), p.line.Value(pair.key)
		if (cert == "") != (key == "") {
			given, missing := pair.cert, pair.key
			if cert == "" {
				given, missing = missing, given
			}
			p.refuse("--"+missing, "add it to the manifest", "it is missing, but there is --%s", given)
		}
	}
	for _, name := range []string{
		"shutdown-delay-duration", "shutdown-watch-termination-grace-period", "request-timeout",
	} {
		if _, err := p.duration(name, 0); err != nil {
			p.refuse("--"+name+"="+p.line.Value(name), "give a duration such as 15s", "%v", err)
		}
	}
	if p.o.JoinKubernetes && p.line.Value("endpoint-reconciler-type") == "master-count" {
		p.refuse("--endpoint-reconciler-type=master-count", "remove it from the static API servers, whose default is lease",
			"with it, static API servers keep a fixed number of endpoints and would remove the Deployment's")
	}
	if a := p.line.Value("bind-address"); a != "" {
		if ip, err := netip.ParseAddr(a); err != nil || !ip.IsUnspecified() {
			p.note("--bind-address=%s is left out: a Pod listens on all of its addresses", a)
		}
	}
}

func (p *planner) checkPort() {
	text := p.line.Value("secure-port")
	if text == "" {
		p.port = defaultPort
		return
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > 65535 {
		p.refuse("--secure-port="+text, "give a port", "it is not a port from 1 to 65535")
		return
	}
	p.port = int32(n)
}

// checkEtcd refuses etcd servers that only the host reaches, and those that need a certificate that is not given.
func (p *planner) checkEtcd() {
	list := p.line.List("etcd-servers")
	if len(list) == 0 {
		p.refuse("--etcd-servers", "add it to the manifest", "it is missing")
		return
	}
	flags := map[string][]string{"etcd-servers": list}
	for _, item := range p.line.List("etcd-servers-overrides") {
		if _, servers, ok := strings.Cut(item, "#"); ok {
			flags["etcd-servers-overrides"] = append(flags["etcd-servers-overrides"], strings.Split(servers, ";")...)
		}
	}
	secure := false
	for _, name := range []string{"etcd-servers", "etcd-servers-overrides"} {
		for _, server := range flags[name] {
			secure = p.checkEtcdServer("--"+name+"="+server, server) || secure
		}
	}
	if !secure {
		return
	}
	for _, name := range []string{"etcd-cafile", "etcd-certfile", "etcd-keyfile"} {
		if p.line.Value(name) == "" {
			p.refuse("--"+name, "add it to the manifest; kubeadm keeps etcd's in /etc/kubernetes/pki/etcd and the client's "+
				"in apiserver-etcd-client.crt and .key", "it is missing, but etcd is used over TLS")
		}
	}
}

func (p *planner) checkEtcdServer(object, server string) (secure bool) {
	const cure = "give the etcds by addresses that Pods reach, such as --set " +
		"etcd-servers=https://10.0.0.11:2379,https://10.0.0.12:2379"
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Host == "" && u.Scheme != "unix":
		p.refuse(object, cure, "it is not the URL of an etcd")
	case u.Scheme == "unix" || u.Scheme == "unixs":
		p.refuse(object, cure, "it is a socket on the host")
	case isLoopback(u.Hostname()):
		p.refuse(object, cure, "that etcd is reached on its own host only")
	case u.Scheme == "http":
		p.note("%s: etcd is used without TLS: anyone who can reach it can read and change everything", object)
	}
	return err == nil && u.Scheme == "https"
}

// duration returns the value of a flag, or absent if the flag is not given.
func (p *Plan) duration(name string, absent time.Duration) (time.Duration, error) {
	text := p.line.Value(name)
	if text == "" {
		return absent, nil
	}
	return time.ParseDuration(text)
}

// finishFlags sets the flags that differ in a Deployment.
func (p *planner) finishFlags() {
	for _, name := range managed {
		p.line = p.line.Without(name)
	}
	p.line = p.line.With("advertise-address", "$(POD_IP)")
	kind := "none"
	if p.o.JoinKubernetes {
		kind = "lease"
	}
	p.line = p.line.With("endpoint-reconciler-type", kind).With("secure-port", strconv.Itoa(int(p.port)))
	for _, f := range []struct{ name, value string }{
		{"shutdown-delay-duration", shutdownDelay.String()},
		{"shutdown-send-retry-after", "true"},
		{"shutdown-watch-termination-grace-period", watchGrace.String()},
		{"goaway-chance", goaway},
	} {
		if !p.line.Has(f.name) {
			p.line = p.line.With(f.name, f.value)
		}
	}
}

// gracePeriod is how long a Pod has to end: the delay, the remaining time of its requests and watches, and a margin.
func (p *Plan) gracePeriod() time.Duration {
	delay, _ := p.duration("shutdown-delay-duration", 0) // checkFlags has parsed it
	requests, _ := p.duration("request-timeout", requestTimeout)
	watches, _ := p.duration("shutdown-watch-termination-grace-period", 0)
	return (delay + max(requests, watches) + 15*time.Second).Round(time.Second)
}

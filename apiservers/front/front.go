package front

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Names of proxies.
const (
	HAProxy = "haproxy"
	Envoy   = "envoy"
)

// A Front describes the proxy on a host. Its YAML is the file front.yaml, which the agent reads.
type Front struct {
	// Proxy is HAProxy or Envoy.
	Proxy string `json:"proxy"`
	// Listen is the IP:PORT that clients connect to.
	Listen string `json:"listen"`
	// Admin is the IP:PORT of the proxy's own metrics and health. It has no authentication.
	Admin string `json:"admin"`
	// Static are the IP:PORTs of the static API servers. There is at least one. They get connections while no server of
	// the Deployment is up.
	Static []string `json:"static"`
	// Service is the NAMESPACE/NAME of the Service of the Deployment's API servers. Its EndpointSlices contain their
	// addresses.
	Service string `json:"service"`
	// PortName is the port of the Service to use.
	PortName string `json:"portName"`
	// CA is the path, on the host, of a PEM file with the authorities that sign the API servers' certificates.
	CA string `json:"ca"`
	// ServerName is a name in all API servers' certificates.
	ServerName string `json:"serverName"`
	// Client is the path, on the host, of a PEM file with a client's certificate and key, with which the proxy requests
	// /readyz. It is empty if anonymous requests are allowed, which is the default in Kubernetes.
	Client string `json:"client,omitempty"`
	// Dir is the folder of the configuration on the host, and RunDir the folder of sockets and process IDs.
	Dir    string `json:"dir"`
	RunDir string `json:"runDir"`
	// MaxConnections limits the clients' connections, from 10 to 1,000,000.
	MaxConnections int `json:"maxConnections"`
	// Interval is the time between two checks of a server, and Timeout how long TCP and TLS of a check may take. A server
	// is down when two checks in a row fail. The second follows a tenth of a second after the first. So a server that does
	// not answer at all is down after at most Interval + 2 Timeout + 0.1 s. One that stops while a check waits for its
	// answer is down after AnswerTimeout + Timeout + 0.1 s. Both are from 100 ms to a minute. With HAProxy, Timeout is at
	// most Interval.
	Interval metav1.Duration `json:"interval"`
	Timeout  metav1.Duration `json:"timeout"`
	// AnswerTimeout is how long a server may take to answer a check once TLS is up. An API server waits up to 2 s for each
	// etcd, twice, before it reports that it is not ready. Envoy has no such time: its Timeout is for the whole check.
	// From 100 ms to a minute.
	AnswerTimeout metav1.Duration `json:"answerTimeout"`
	// SlowStart is how long a server that comes back gets less than its share, from 0 to an hour.
	SlowStart metav1.Duration `json:"slowStart"`
	// IdleTimeout closes connections on which nothing was sent for that long. Watches of client-go send a ping every 30 s,
	// but sessions of kubectl exec may not. At least a minute.
	IdleTimeout metav1.Duration `json:"idleTimeout"`
}

// A Server is an API server of the Deployment.
type Server struct {
	// Address is IP:PORT.
	Address string `json:"address"`
	// Draining servers get no new connections and keep their connections.
	Draining bool `json:"draining,omitempty"`
}

// Default returns a front with defaults for all fields except Static.
func Default() *Front {
	return &Front{
		Proxy: HAProxy, Listen: "127.0.0.1:7443", Admin: "127.0.0.1:7444",
		Service: "kube-system/kube-apiserver", PortName: "https",
		CA: "/etc/kubernetes/pki/ca.crt", ServerName: "kubernetes",
		Dir: "/etc/rota-front", RunDir: "/run/rota-front", MaxConnections: 4000,
		Interval:      metav1.Duration{Duration: 700 * time.Millisecond},
		Timeout:       metav1.Duration{Duration: 500 * time.Millisecond},
		AnswerTimeout: metav1.Duration{Duration: 5 * time.Second},
		SlowStart:     metav1.Duration{Duration: 10 * time.Second}, IdleTimeout: metav1.Duration{Duration: 4 * time.Hour},
	}
}

// FrontFile is the name of the file with the Front.
const FrontFile = "front.yaml"

// frontMark is the first line of that file.
const frontMark = "# What the proxy before the API servers does. Written by `rota front`, and read by its agent.\n"

// ParseFront parses a front.yaml. from names it in errors.
func ParseFront(from string, text []byte) (*Front, error) {
	f := &Front{}
	if err := yaml.UnmarshalStrict(text, f); err != nil {
		return nil, fmt.Errorf("%s is not a description of a front, as `rota front` writes it: %w", from, err)
	}
	if f.Proxy == "" {
		return nil, fmt.Errorf("%s is not a description of a front, as `rota front` writes it: it names no proxy", from)
	}
	if err := f.Validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return f, nil
}

// YAML returns the text of front.yaml.
func (f *Front) YAML() ([]byte, error) {
	text, err := yaml.Marshal(f)
	return append([]byte(frontMark), text...), err
}

var (
	serviceForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	nameForm    = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$`)
	// Paths must not contain characters that are special in the proxies' formats.
	pathForm = regexp.MustCompile(`^/[-A-Za-z0-9._/@+=]*$`)
)

// Validate returns all mistakes of a front in one error.
func (f *Front) Validate() error {
	var bad []string
	refuse := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if f.Proxy != HAProxy && f.Proxy != Envoy {
		refuse("proxy %q: must be %s or %s", f.Proxy, HAProxy, Envoy)
	}
	listen, err := parseAddress(f.Listen)
	if err != nil {
		refuse("address to listen on: %v", err)
	}
	admin, err := parseAddress(f.Admin)
	if err != nil {
		refuse("address of metrics and health: %v", err)
	} else if meets(listen, admin) || meets(admin, listen) {
		refuse("address of metrics and health %s: clients connect there", f.Admin)
	}
	if len(f.Static) == 0 {
		refuse("no static API server: name at least one, for the cold start")
	}
	seen := map[netip.AddrPort]bool{}
	for _, text := range f.Static {
		a, err := parseAddress(text)
		switch {
		case err != nil:
			refuse("static API server: %v", err)
		case a.Addr().IsUnspecified():
			refuse("static API server %s: an address to listen on, not one to connect to", text)
		case seen[a]:
			refuse("static API server %s: named twice", text)
		case meets(listen, a):
			refuse("static API server %s: the front itself listens there, on %s; a front that is its own server would send "+
				"connections in a circle", text, f.Listen)
		}
		seen[a] = true
	}
	if !serviceForm.MatchString(f.Service) {
		refuse("service %q: must be NAMESPACE/NAME", f.Service)
	}
	if !nameForm.MatchString(f.PortName) {
		refuse("port name %q: must be the name of a port of the service", f.PortName)
	}
	if _, err := netip.ParseAddr(f.ServerName); err == nil || !nameForm.MatchString(f.ServerName) {
		refuse("server name %q: must be a DNS name that the API servers' certificates have", f.ServerName)
	}
	for _, p := range []struct{ what, path string }{
		{"folder of the configuration", f.Dir}, {"folder of sockets", f.RunDir},
		{"file of certificate authorities", f.CA}, {"file of the client certificate", f.Client},
	} {
		if p.path == "" && p.what == "file of the client certificate" {
			continue
		}
		if !pathForm.MatchString(p.path) || filepath.Clean(p.path) != p.path {
			refuse("%s %q: must be an absolute path of letters, digits and -._/@+=", p.what, p.path)
		}
	}
	if f.MaxConnections < 10 || f.MaxConnections > 1_000_000 {
		refuse("max connections %d: must be from 10 to 1000000", f.MaxConnections)
	}
	for _, d := range []struct {
		name                   string
		value, lowest, highest time.Duration
	}{
		{"interval", f.Interval.Duration, 100 * time.Millisecond, time.Minute},
		{"timeout", f.Timeout.Duration, 100 * time.Millisecond, time.Minute},
		{"answer timeout", f.AnswerTimeout.Duration, 100 * time.Millisecond, time.Minute},
		{"slow start", f.SlowStart.Duration, 0, time.Hour},
		{"idle timeout", f.IdleTimeout.Duration, time.Minute, 240 * time.Hour},
	} {
		if d.value < d.lowest || d.value > d.highest {
			refuse("%s %v: must be from %v to %v", d.name, d.value, d.lowest, d.highest)
		}
	}
	if f.Proxy == HAProxy && f.Timeout.Duration > f.Interval.Duration {
		refuse("timeout %v: must be at most the interval, %v: HAProxy gives a check no longer to connect", f.Timeout.Duration,
			f.Interval.Duration)
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

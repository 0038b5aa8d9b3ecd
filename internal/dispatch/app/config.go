// Package app runs one dispatcher of a tier: it reads the configuration of `rota dispatch`, and combines a member of
// the rota, its queue, and its servers.
package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/dispatch/access"
	"github.com/rota-dev/rota/internal/dispatch/keeper"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
)

// Config is the file that `rota dispatch --config` reads. All dispatchers of a tier use the same file. docs/dispatch.md
// describes it for operators.
type Config struct {
	// Name names the tier and its rota: the ConfigMap with this name holds the rota's table. It must be a DNS label.
	// Required.
	Name string `yaml:"name"`
	// Namespace is the namespace of the ConfigMap and the Leases. Default: POD_NAMESPACE, or the Pod's own namespace.
	Namespace string `yaml:"namespace"`
	// Kinds are the kinds of the keys that are handed out. At least one is required.
	Kinds []Kind `yaml:"kinds"`
	// Delivery is how objects reach the dispatcher that owns their slot. Filter is the only value, and the default.
	Delivery string `yaml:"delivery"`
	// Slots is the number of slots, a power of two up to 4096. Default 256. It cannot be changed while there is a table.
	Slots int `yaml:"slots"`
	// Key is the part of an object's name that is hashed: Name, the default, or Namespace. It cannot be changed while
	// there is a table.
	Key string `yaml:"key"`

	// RememberNames makes each dispatcher remember the names of the objects in its slots, and recent deletions in other
	// dispatchers' slots. Workers then also get deletions that happened while a watch was interrupted for too long, and
	// deletions of a dispatcher that dies while others live. For each object in its slots it takes the name and 12 bytes.
	RememberNames bool `yaml:"rememberNames"`
	// Resync is how often all keys are handed out even without a known change. Default: never.
	Resync Duration `yaml:"resync"`

	// LeaseDuration and the next four fields are the fields of rota.Options, with the same defaults, derived from 15s.
	LeaseDuration Duration `yaml:"leaseDuration"`
	RenewDeadline Duration `yaml:"renewDeadline"`
	RetryPeriod   Duration `yaml:"retryPeriod"`
	WriteTimeout  Duration `yaml:"writeTimeout"`
	FenceDelay    Duration `yaml:"fenceDelay"`
	// LeaveTimeout bounds a graceful leave: how long takes may continue when the dispatcher has to end. Keep it below
	// terminationGracePeriodSeconds. Default: Takes.DrainLimit plus 15 s.
	LeaveTimeout Duration `yaml:"leaveTimeout"`

	Takes  Takes  `yaml:"takes"`
	Server Server `yaml:"server"`
	// Audience is the audience that tokens of workers and dispatchers must have. Default rota.dev/dispatch.
	Audience string `yaml:"audience"`
	// TokenFile is a file with this dispatcher's own token for Audience, which it shows to other dispatchers. Use a
	// projected volume of the ServiceAccount that the dispatcher also uses for the API server. Required.
	TokenFile string `yaml:"tokenFile"`
	Limits    Limits `yaml:"limits"`
	// Metrics is the address of /metrics, /healthz and /readyz, over plain HTTP. Default ":8080".
	Metrics string `yaml:"metrics"`
}

// Kind configures a kind whose keys are handed out.
type Kind struct {
	// Kind is KIND.GROUP, or KIND in the core group.
	Kind string `yaml:"kind"`
	// Namespaces are the objects' namespaces. Default: all.
	Namespaces []string `yaml:"namespaces"`
	// Selector is a label selector. Default: all objects. An object whose labels no longer match is handed out as gone.
	Selector string `yaml:"selector"`
	// Owns are kinds of children, in the form of Kind. When a child changes, the key of the object that controls it is
	// handed out, as with Owns of controller-runtime. It cannot be used with Selector.
	Owns []string `yaml:"owns"`
	// MaxTaken is how many keys of the kind each dispatcher hands out at a time, like MaxConcurrentReconciles of
	// controller-runtime for each replica. Default: as many as workers ask for.
	MaxTaken int `yaml:"maxTaken"`
}

// Takes configures the takes of workers, like queue.Config.
type Takes struct {
	// Length is how long a take lasts if the worker does not ask for a length. Default 30s.
	Length Duration `yaml:"length"`
	// MinLength is the shortest length of a take, and MaxLength the longest that a worker may ask for at a time. Defaults
	// 1s and 10m.
	MinLength Duration `yaml:"minLength"`
	MaxLength Duration `yaml:"maxLength"`
	// BaseDelay is the delay after a key's first failure. It doubles with each, up to MaxDelay. Defaults 5ms and 1000s.
	BaseDelay Duration `yaml:"baseDelay"`
	MaxDelay  Duration `yaml:"maxDelay"`
	// Patience is how long a key waits for the worker that it prefers. Default 1s.
	Patience Duration `yaml:"patience"`
	// DrainLimit is how long takes may be extended once their slot is about to move to another dispatcher. Default 1m.
	DrainLimit Duration `yaml:"drainLimit"`
}

// Server configures the server for workers.
type Server struct {
	// Listen is the address to listen on. Default ":8443".
	Listen string `yaml:"listen"`
	// Advertise is the URL at which other dispatchers reach this one. Default: https, POD_IP, and the port of Listen.
	Advertise string `yaml:"advertise"`
	TLS       TLS    `yaml:"tls"`
	// Insecure serves plain HTTP. A proxy in front of the dispatcher must then encrypt, since requests contain tokens.
	Insecure bool `yaml:"insecure"`
}

// TLS names files, which are reread when they change.
type TLS struct {
	// CertFile and KeyFile contain the certificate and its key in PEM.
	CertFile string `yaml:"certFile"`
	KeyFile  string `yaml:"keyFile"`
	// CAFile contains the authorities that sign other dispatchers' certificates. Default: the system's.
	CAFile string `yaml:"caFile"`
	// ServerName is a name in the certificates of all dispatchers, such as NAME.NAMESPACE.svc of their Service. Default:
	// the host of the URL, which the certificate must then contain.
	ServerName string `yaml:"serverName"`
}

// Limits bound the load that clients can cause, like access.Limits.
type Limits struct {
	// Rate is how many requests per second each user may send, and Burst how many at once. Defaults 1000 and 2 * Rate.
	Rate  float64 `yaml:"rate"`
	Burst int     `yaml:"burst"`
	// UnderWay is how many requests each user may have in flight, and Total the limit for all users. Defaults 5000 and
	// 20000.
	UnderWay int `yaml:"underWay"`
	Total    int `yaml:"total"`
	// Reviews is how many new tokens per second the API server is asked to review. Default 50.
	Reviews float64 `yaml:"reviews"`
	// Connections is the limit of open connections. One address may have a tenth of them before it has shown a valid
	// token. Default 10000.
	Connections int `yaml:"connections"`
}

// Duration is a duration with its unit, for example "30s".
type Duration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *Duration) UnmarshalYAML(node *yaml.Node) error {
	v, err := time.ParseDuration(node.Value)
	if err != nil || node.Kind != yaml.ScalarNode || v < 0 || node.Value == "0" {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf(
			"line %d: %q is no duration: write a number above 0 and its unit, as 30s or 500ms", node.Line, node.Value)}}
	}
	*d = Duration(v)
	return nil
}

// Load reads a file. Errors name the file.
func Load(path string) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Parse reads the text of a configuration. It refuses unknown fields. Call Check afterwards.
func Parse(text []byte) (*Config, error) {
	c := &Config{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(c)
	var wrong *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty: set at least name and kinds")
	case errors.As(err, &wrong):
		return nil, errors.New(strings.Join(wrong.Errors, "; "))
	case err != nil:
		return nil, err
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is a second document in it: remove what follows the line ---")
	}
	return c, nil
}

// Check sets defaults and returns all mistakes in one error. It reads no files.
func (c *Config) Check() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	setDefault(&c.Audience, "rota.dev/dispatch")
	setDefault(&c.Metrics, ":8080")
	setDefault(&c.Server.Listen, ":8443")
	if bad := validation.IsDNS1123Label(c.Name); len(bad) > 0 {
		refuse("name %q: give the tier a name of lower-case letters, digits and dashes", c.Name)
	}
	if len(c.Kinds) == 0 {
		refuse("kinds: missing: name at least one, as in `kinds: [{kind: Website.example.com}]`")
	}
	seen := map[schema.GroupKind]bool{}
	for i, k := range c.Kinds {
		errs = append(errs, k.check(fmt.Sprintf("kinds[%d]", i)))
		if seen[k.groupKind()] {
			refuse("kinds[%d]: %s is listed twice: merge the two", i, k.Kind)
		}
		seen[k.groupKind()] = true
	}
	if mode, err := sharding.ParseMode(c.Delivery); c.Delivery != "" && (err != nil || mode != sharding.Filter) {
		refuse("delivery %q: dispatchers have Filter only: leave it out", c.Delivery)
	}
	if key, err := slot.ParseKey(c.Key); c.Key != "" && (err != nil || key == slot.KeyUID) {
		refuse("key %q: must be Name or Namespace", c.Key)
	}
	if err := c.queue().Validate(); err != nil {
		refuse("takes: %w", err)
	}
	if c.LeaveTimeout == 0 {
		c.LeaveTimeout = Duration(c.queue().DrainLimit + 15*time.Second)
	}
	if err := c.limits().Validate(); err != nil {
		refuse("limits: %w", err)
	}
	if c.Limits.Connections < 0 {
		refuse("limits: connections %d: must not be negative", c.Limits.Connections)
	}
	if c.TokenFile == "" {
		refuse("tokenFile: it is missing: mount a token of this ServiceAccount for the audience %q, and name its file, so "+
			"that dispatchers can ask one another", c.Audience)
	}
	for field, address := range map[string]string{"server.listen": c.Server.Listen, "metrics": c.Metrics} {
		if err := checkAddress(address); err != nil {
			refuse("%s %q: %w", field, address, err)
		}
	}
	if c.Server.Listen == c.Metrics && !strings.HasSuffix(c.Metrics, ":0") {
		refuse("metrics %q: server.listen is the same: use another port", c.Metrics)
	}
	errs = append(errs, c.Server.check())
	if errors.Join(errs...) == nil {
		// rota.Options checks the lease and the names.
		o := c.rota()
		setDefault(&o.Namespace, "default")
		if _, err := rota.New(&rest.Config{Host: "https://localhost"}, o); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func setDefault(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("write host and port, as \":8443\" or \"127.0.0.1:8443\"")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("port %q: must be from 0 to 65535", port)
	}
	return nil
}

func (k Kind) groupKind() schema.GroupKind { return schema.ParseGroupKind(k.Kind) }

func (k Kind) check(at string) error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{at}, args...)...))
	}
	if !isKind(k.groupKind()) {
		refuse("kind %q: write KIND.GROUP as in Website.example.com, or KIND in the core group", k.Kind)
	}
	for i, child := range k.Owns {
		if !isKind(schema.ParseGroupKind(child)) {
			refuse("owns: %q: write KIND.GROUP as in Deployment.apps, or KIND in the core group", child)
		}
		if slices.Contains(k.Owns[:i], child) {
			refuse("owns: %s is listed twice", child)
		}
	}
	if k.Selector != "" && len(k.Owns) > 0 {
		refuse("owns: there is also a selector, and a child does not show its owner's labels: remove one of them")
	}
	if k.MaxTaken < 0 {
		refuse("maxTaken %d: must be above 0, or left out: then workers get as many keys as they ask for", k.MaxTaken)
	}
	for i, namespace := range k.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			refuse("namespaces: %q cannot be one: list names; patterns are not supported", namespace)
		}
		if slices.Contains(k.Namespaces[:i], namespace) {
			refuse("namespaces: %q is listed twice", namespace)
		}
	}
	if _, err := labels.Parse(k.Selector); err != nil {
		refuse("selector %q: %w", k.Selector, err)
	}
	return errors.Join(errs...)
}

func isKind(k schema.GroupKind) bool {
	return k.Kind != "" && unicode.IsUpper([]rune(k.Kind)[0]) && !strings.ContainsFunc(k.Kind, notOfKind) &&
		(k.Group == "" || len(validation.IsDNS1123Subdomain(k.Group)) == 0)
}

func notOfKind(c rune) bool {
	return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c)
}

func (s Server) check() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf("server."+format, args...)) }
	switch {
	case s.Insecure && s.TLS != (TLS{CAFile: s.TLS.CAFile, ServerName: s.TLS.ServerName}):
		refuse("insecure: there is also a certificate: remove one of them")
	case !s.Insecure && (s.TLS.CertFile == "" || s.TLS.KeyFile == ""):
		refuse("tls: name certFile and keyFile, or set `insecure: true` if a proxy in front of the dispatcher encrypts")
	}
	if s.Advertise != "" {
		u, err := url.Parse(s.Advertise)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" ||
			*u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
			refuse("advertise %q: write a URL with a host and without a path, as https://10.0.0.7:8443", s.Advertise)
		} else if u.Scheme == "http" && !s.Insecure {
			refuse("advertise %q: it would send tokens without encryption: write https://, or set `insecure: true`",
				s.Advertise)
		}
	}
	return errors.Join(errs...)
}

// advertised returns the URL of this dispatcher, which listens on port.
func (s Server) advertised(port int) (string, error) {
	if s.Advertise != "" {
		return s.Advertise, nil
	}
	host := os.Getenv("POD_IP")
	if host == "" {
		host, _, _ = net.SplitHostPort(s.Listen)
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			return "", errors.New("server.advertise: it is missing, and so is POD_IP: set one of them (POD_IP by the " +
				"downward API, from status.podIP), so that other dispatchers can reach this one")
		}
	}
	scheme := "https"
	if s.Insecure {
		scheme = "http"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func (c *Config) rota() rota.Options {
	o := rota.Options{
		Name: c.Name, Namespace: c.Namespace, Slots: slot.Count(c.Slots), Delivery: sharding.Filter,
		LeaseDuration: time.Duration(c.LeaseDuration), RenewDeadline: time.Duration(c.RenewDeadline),
		RetryPeriod: time.Duration(c.RetryPeriod), WriteTimeout: time.Duration(c.WriteTimeout),
		FenceDelay: time.Duration(c.FenceDelay), LeaveTimeout: time.Duration(c.LeaveTimeout),
	}
	o.Key, _ = slot.ParseKey(c.Key)
	return o
}

func (c *Config) kinds() []keeper.Kind {
	var out []keeper.Kind
	for _, k := range c.Kinds {
		kind := keeper.Kind{Kind: k.groupKind(), Namespaces: k.Namespaces, Selector: k.Selector,
			MaxTaken: k.MaxTaken}
		for _, child := range k.Owns {
			kind.Owns = append(kind.Owns, schema.ParseGroupKind(child))
		}
		out = append(out, kind)
	}
	return out
}

// queue returns the configuration of a queue with placeholders for its slots and kinds.
func (c *Config) queue() *queue.Config {
	out := &queue.Config{
		Slots: slot.DefaultCount, Kinds: []string{"any"},
		Length: time.Duration(c.Takes.Length), MinLength: time.Duration(c.Takes.MinLength),
		MaxLength: time.Duration(c.Takes.MaxLength), BaseDelay: time.Duration(c.Takes.BaseDelay),
		MaxDelay: time.Duration(c.Takes.MaxDelay), Patience: time.Duration(c.Takes.Patience),
		DrainLimit: time.Duration(c.Takes.DrainLimit),
	}
	out.SetDefaults()
	return out
}

func (c *Config) limits() access.Limits {
	return access.Limits{
		Rate: c.Limits.Rate, Burst: c.Limits.Burst, UnderWay: c.Limits.UnderWay, Total: c.Limits.Total,
		Reviews: c.Limits.Reviews,
	}
}

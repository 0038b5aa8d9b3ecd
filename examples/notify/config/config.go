// Package config reads the notifier's configuration: what it tells, and whom.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/examples/notify/notice"
)

// Config is the whole file.
type Config struct {
	// Name distinguishes notifiers in one namespace. It is part of the names of their records. Default "notify".
	Name string `yaml:"name"`
	// Source names the cluster in what is sent: the source of CloudEvents, a URI reference.
	Source       string        `yaml:"source"`
	Kinds        []Kind        `yaml:"kinds"`
	Destinations []Destination `yaml:"destinations"`
	// Digest is nil if there is none.
	Digest *Digest `yaml:"digest"`
}

// Kind says what is told of a kind.
type Kind struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	// Namespaces limits it to objects in these namespaces. Default: all.
	Namespaces []string `yaml:"namespaces"`
	// Events are what is told. At least one.
	Events []notice.Type `yaml:"events"`
	// Reasons limits the event failing to these reasons. Default: all that the kind has.
	Reasons []string `yaml:"reasons"`
}

// Destination is somebody who is told. Exactly one of Webhook and Slack is set.
type Destination struct {
	Name    string   `yaml:"name"`
	Webhook *Webhook `yaml:"webhook"`
	Slack   *Slack   `yaml:"slack"`
	// Events limits what this destination is told. Default: all that the kinds say.
	Events []notice.Type `yaml:"events"`
	// Rate is the most requests per second that one replica sends on average, and Burst how many it may send at once.
	// Defaults 1 and 10.
	Rate  float64 `yaml:"rate"`
	Burst int     `yaml:"burst"`
	// Timeout bounds one request. Default 5 s.
	Timeout time.Duration `yaml:"timeout"`
	Backoff Backoff       `yaml:"backoff"`
}

// Backoff is the wait after failures: Min after the first, twice as long after each further one, up to Max.
type Backoff struct {
	Min time.Duration `yaml:"min"` // default 1 s
	Max time.Duration `yaml:"max"` // default 1 min
}

// Webhook gets CloudEvents, signed if there is a secret.
type Webhook struct {
	URL        string `yaml:"url"`
	URLFile    string `yaml:"urlFile"`
	SecretFile string `yaml:"secretFile"`

	// Secret is what SecretFile holds.
	Secret []byte `yaml:"-"`
}

// Slack is an incoming webhook of Slack, or of a chat that takes the same payload.
type Slack struct {
	URL     string `yaml:"url"`
	URLFile string `yaml:"urlFile"`
}

// Load reads a file, and the files that it names. Errors name the file, what is wrong and what to do.
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

// Parse reads the text of a configuration, and the files that it names.
func Parse(text []byte) (*Config, error) {
	c := &Config{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(c)
	var wrong *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("it is empty: name kinds and destinations in it")
	case errors.As(err, &wrong):
		return nil, errors.New(strings.Join(wrong.Errors, "; "))
	case err != nil:
		return nil, err
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is a second document in it: remove what follows the line ---")
	}
	return c, c.complete()
}

// complete sets defaults and checks everything. It returns all errors at once.
func (c *Config) complete() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" {
		c.Name = "notify"
	}
	if m := validation.IsDNS1123Label(c.Name); len(m) > 0 || len(c.Name) > 40 {
		refuse("name %q: use at most 40 lower-case letters, digits and dashes", c.Name)
	}
	if _, err := url.Parse(c.Source); err != nil || c.Source == "" {
		refuse("source %q: name the cluster with a URI reference, such as //clusters.example.com/eu-1", c.Source)
	}
	if len(c.Kinds) == 0 {
		refuse("kinds: there is none: name at least one, with apiVersion, kind and events")
	}
	if len(c.Destinations) == 0 {
		refuse("destinations: there is none: name at least one, with a webhook or slack")
	}
	seen := map[string]bool{}
	for i := range c.Kinds {
		k := &c.Kinds[i]
		if id := k.GroupKind().String(); seen[id] && k.Kind != "" {
			refuse("%s: it is there twice: merge the two entries", k)
		} else {
			seen[id] = true
		}
		errs = append(errs, k.check())
	}
	names := map[string]bool{}
	for i := range c.Destinations {
		d := &c.Destinations[i]
		if names[d.Name] {
			refuse("%s: there is another one of that name: rename one of them", d)
		}
		names[d.Name] = true
		errs = append(errs, d.complete())
	}
	if c.Digest != nil {
		errs = append(errs, c.Digest.complete(c))
	}
	return errors.Join(errs...)
}

// GroupKind returns the kind with its group.
func (k *Kind) GroupKind() schema.GroupKind {
	return schema.FromAPIVersionAndKind(k.APIVersion, k.Kind).GroupKind()
}

// Wants says whether an event of the kind is told.
func (k *Kind) Wants(t notice.Type) bool { return slices.Contains(k.Events, t) }

// String names the entry in errors.
func (k *Kind) String() string { return fmt.Sprintf("kind %q of %q", k.Kind, k.APIVersion) }

// reasons are the reasons for which objects of a kind fail.
var reasons = map[schema.GroupKind][]string{
	{Kind: "Pod"}:                       {notice.CrashLoopBackOff, notice.ImagePullBackOff},
	{Group: "batch", Kind: "Job"}:       {notice.JobFailed},
	{Group: "apps", Kind: "Deployment"}: {notice.Unavailable},
}

func (k *Kind) check() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{k}, args...)...))
	}
	if _, err := schema.ParseGroupVersion(k.APIVersion); err != nil || k.APIVersion == "" || k.Kind == "" {
		refuse("apiVersion or kind is missing or malformed: write them as in a manifest, such as apps/v1 and Deployment")
	}
	for _, namespace := range k.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			refuse("namespace %q cannot exist: list names of namespaces; patterns are not known", namespace)
		}
	}
	if len(k.Events) == 0 {
		refuse("events: there is none: use some of %s", list(notice.Types))
	}
	for _, e := range k.Events {
		if !slices.Contains(notice.Types, e) {
			refuse("event %q is not known: use some of %s", e, list(notice.Types))
		}
	}
	known := reasons[k.GroupKind()]
	if k.Wants(notice.Failing) && len(known) == 0 {
		refuse("event failing: it is not known when such objects fail: remove the event; Pods, Jobs and Deployments have it")
	}
	if len(k.Reasons) > 0 && !k.Wants(notice.Failing) {
		refuse("reasons are for the event failing: add that event, or remove the reasons")
	}
	for _, reason := range k.Reasons {
		if len(known) > 0 && !slices.Contains(known, reason) {
			refuse("reason %q is not known: use some of %s", reason, strings.Join(known, ", "))
		}
	}
	return errors.Join(errs...)
}

// WantsReason says whether a failure for that reason is told.
func (k *Kind) WantsReason(reason string) bool {
	return k.Wants(notice.Failing) && (len(k.Reasons) == 0 || slices.Contains(k.Reasons, reason))
}

// String names the entry in errors.
func (d *Destination) String() string { return fmt.Sprintf("destination %q", d.Name) }

// Wants says whether the destination is told of an event.
func (d *Destination) Wants(t notice.Type) bool {
	return len(d.Events) == 0 || slices.Contains(d.Events, t)
}

// URL returns where to post.
func (d *Destination) URL() string {
	if d.Slack != nil {
		return d.Slack.URL
	}
	return d.Webhook.URL
}

func (d *Destination) complete() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{d}, args...)...))
	}
	if len(validation.IsDNS1123Label(d.Name)) > 0 {
		refuse("give it a name of lower-case letters, digits and dashes")
	}
	for _, e := range d.Events {
		if !slices.Contains(notice.Types, e) {
			refuse("event %q is not known: use some of %s", e, list(notice.Types))
		}
	}
	switch {
	case (d.Webhook == nil) == (d.Slack == nil):
		refuse("it needs either webhook or slack")
	case d.Slack != nil:
		errs = append(errs, d.address(&d.Slack.URL, d.Slack.URLFile))
	default:
		errs = append(errs, d.address(&d.Webhook.URL, d.Webhook.URLFile), d.readSecret())
	}
	if d.Rate < 0 || d.Burst < 0 || d.Timeout < 0 || d.Backoff.Min < 0 || d.Backoff.Max < 0 {
		refuse("rate, burst, timeout and backoff must not be negative")
	}
	setDefault(&d.Rate, 1)
	setDefault(&d.Burst, 10)
	setDefault(&d.Timeout, 5*time.Second)
	setDefault(&d.Backoff.Min, time.Second)
	setDefault(&d.Backoff.Max, max(time.Minute, d.Backoff.Min))
	if d.Backoff.Max < d.Backoff.Min {
		refuse("backoff: max %s is below min %s: swap them", d.Backoff.Max, d.Backoff.Min)
	}
	return errors.Join(errs...)
}

// address reads the URL from its file if it has one, and checks it. Errors do not show it: it may be a secret.
func (d *Destination) address(to *string, file string) error {
	if (*to == "") == (file == "") {
		return fmt.Errorf("%s: give either url or urlFile", d)
	}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: urlFile: %w", d, err)
		}
		*to = strings.TrimSpace(string(text))
	}
	if u, err := url.Parse(*to); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("%s: its url is not one: write https://host/path", d)
	}
	return nil
}

func (d *Destination) readSecret() error {
	if d.Webhook.SecretFile == "" {
		return nil
	}
	text, err := os.ReadFile(d.Webhook.SecretFile)
	if err != nil {
		return fmt.Errorf("%s: secretFile: %w", d, err)
	}
	if d.Webhook.Secret, err = notice.ParseSecret(strings.TrimSpace(string(text))); err != nil {
		return fmt.Errorf("%s: %s: %w", d, d.Webhook.SecretFile, err)
	}
	return nil
}

func setDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

func list(types []notice.Type) string {
	var out []string
	for _, t := range types {
		out = append(out, string(t))
	}
	return strings.Join(out, ", ")
}

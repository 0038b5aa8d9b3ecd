package engine

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Options implements rota.Options, which documents the fields.
type Options struct {
	Name, Namespace string
	Identity        Identity

	Slots           slot.Count
	Key             slot.Key
	Delivery        sharding.Mode
	Label           bool
	LabelNamespaces []string
	Weight          int
	MemberLabels    map[string]string
	Address         string
	ByLoad          bool

	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	WriteTimeout, FenceDelay, LeaveTimeout    time.Duration
	ScrubPeriod                               time.Duration

	Group                                     *group.Group
	LeaderElectionID, LeaderElectionNamespace string
	NoStockReplicas, Solo                     bool
	TracerProvider                            trace.TracerProvider
	Logger                                    logr.Logger

	shadow bool // set by NewShadow
}

// Identity implements rota.Identity.
type Identity struct {
	Pod               string
	PodUID, Container string
	Workload          string
	Build             string
}

func (i Identity) withDefaults() Identity {
	i.Pod = cmp.Or(i.Pod, os.Getenv("POD_NAME"))
	i.PodUID = cmp.Or(i.PodUID, os.Getenv("POD_UID"))
	i.Container = cmp.Or(i.Container, os.Getenv("CONTAINER_NAME"))
	if i.PodUID != "" && i.Container == "" {
		i.Container = "main" // stable across restarts of the Pod, unless the Pod runs two members
	}
	i.Workload = cmp.Or(i.Workload, workloadOf(i.Pod))
	if i.Pod == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		i.Pod = fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(host, "_", "-")), os.Getpid())
	}
	i.Build = cmp.Or(i.Build, buildOf(i.Pod))
	return i
}

// deploymentPod matches the names of a Deployment's Pods: name, template hash, random suffix.
var deploymentPod = regexp.MustCompile(`-([bcdf-hj-np-tv-xz2456789]{6,10})-[bcdf-hj-np-tv-xz2456789]{5}$`)

// ordinalPod matches the names of a StatefulSet's Pods.
var ordinalPod = regexp.MustCompile(`-(0|[1-9][0-9]*)$`)

// workloadOf returns the name of the Pod's Deployment or StatefulSet, empty if the Pod's name does not show it.
func workloadOf(pod string) string {
	for _, suffix := range []*regexp.Regexp{deploymentPod, ordinalPod} {
		if at := suffix.FindStringIndex(pod); at != nil {
			return pod[:at[0]]
		}
	}
	return ""
}

func buildOf(pod string) string {
	if match := deploymentPod.FindStringSubmatch(pod); match != nil {
		return match[1]
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return s.Value[:12]
			}
		}
	}
	return ""
}

// newID returns an identity that is unique to this start of the process: the Pod's name and five random characters.
func newID(pod string) string {
	return pod + "-" + strings.ToLower(rand.Text()[:5])
}

func (o Options) withDefaults() (Options, error) {
	o, err := o.soloDefaults()
	if err != nil {
		return o, err
	}
	if o.Name == "" {
		return o, errors.New("rota: Options.Name is empty: give the rota a name, such as the operator's")
	}
	if o.Namespace == "" {
		o.Namespace = os.Getenv("POD_NAMESPACE")
	}
	if o.Namespace == "" {
		const file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
		ns, err := os.ReadFile(file)
		if err != nil {
			return o, fmt.Errorf("rota %s: Options.Namespace is empty and this process is not in a Pod (no %s): set "+
				"Options.Namespace or POD_NAMESPACE", o.Name, file)
		}
		o.Namespace = strings.TrimSpace(string(ns))
	}
	if names.IsShadow(o.Name) && !o.shadow {
		return o, fmt.Errorf("rota %s: only shadows have names that end with %s (NewShadow): choose another one", o.Name,
			names.ShadowSuffix)
	}
	if o.Group != nil && o.Group.Program() == "" {
		return o, fmt.Errorf("rota %s: Group: make it with group.Parse", o.Name)
	}
	if err := o.checkSolo(); err != nil {
		return o, err
	}
	if err := o.checkAddress(); err != nil {
		return o, fmt.Errorf("rota %s: %w", o.Name, err)
	}
	if err := o.checkElection(); err != nil {
		return o, fmt.Errorf("rota %s: %w", o.Name, err)
	}
	if o.LeaveTimeout == 0 {
		o.LeaveTimeout = 25 * time.Second
	}
	if o.LeaveTimeout < 0 {
		return o, fmt.Errorf("rota %s: LeaveTimeout %v: must be above 0", o.Name, o.LeaveTimeout)
	}
	if o.Key == slot.KeyUnknown {
		o.Key = slot.KeyName
		if o.Delivery == sharding.ShardSelector {
			o.Key = slot.KeyUID
		}
	}
	if _, err := slot.ParseKey(o.Key.String()); err != nil {
		return o, fmt.Errorf("rota %s: Options.Key %d: must be one of the constants slot.Key…", o.Name, o.Key)
	}
	if err := o.Delivery.Fits(o.Key); err != nil {
		return o, fmt.Errorf("rota %s: %w", o.Name, err)
	}
	if o.ScrubPeriod < 0 {
		return o, fmt.Errorf("rota %s: ScrubPeriod %v: must not be negative", o.Name, o.ScrubPeriod)
	}
	o.Identity = o.Identity.withDefaults()
	if strings.ContainsAny(o.Identity.Workload, "\r\n") {
		return o, fmt.Errorf("rota %s: Options.Identity.Workload %q: must be one line", o.Name, o.Identity.Workload)
	}
	if _, err := labels.ValidatedSelectorFromSet(o.MemberLabels); err != nil {
		return o, fmt.Errorf("rota %s: Options.MemberLabels: %w", o.Name, err)
	}
	if err := o.validNames(); err != nil {
		return o, fmt.Errorf("rota %s: %w", o.Name, err)
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.New(newLogSink(logr.FromSlogHandler(slog.Default().Handler())))
	}
	return o, nil
}

// validNames returns an error if the names are invalid for the rota's objects, since every attempt to create one would
// fail.
func (o Options) validNames() error {
	if reasons := validation.IsDNS1123Label(o.Name); len(reasons) > 0 {
		return fmt.Errorf("Options.Name %q: its ConfigMap and the names of the Leases take a DNS label: %s", o.Name,
			strings.Join(reasons, "; "))
	}
	if reasons := validation.IsDNS1123Label(o.Namespace); len(reasons) > 0 {
		return fmt.Errorf("Options.Namespace %q: no namespace has such a name: %s", o.Namespace, strings.Join(reasons, "; "))
	}
	lease := names.Lease(o.Name, newID(o.Identity.Pod))
	if reasons := validation.IsDNS1123Subdomain(lease); len(reasons) > 0 {
		return fmt.Errorf("Options.Identity.Pod %q (POD_NAME): no Lease can have the name %q: %s; give every replica a name "+
			"as Pods have them, of at most %d characters",
			o.Identity.Pod, lease, strings.Join(reasons, "; "),
			validation.DNS1123SubdomainMaxLength-len(lease)+len(o.Identity.Pod))
	}
	return nil
}

// config returns the configuration of a new incarnation.
func (o Options) config() (member.Config, error) {
	cfg := member.Config{
		Self: table.Member{
			ID: newID(o.Identity.Pod), Pod: o.Identity.Pod, PodUID: o.Identity.PodUID, Container: o.Identity.Container,
			Build: o.Identity.Build, Weight: o.Weight, Labels: table.JoinLabels(o.MemberLabels),
		},
		Slots: o.Slots, Key: o.Key,
		LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod,
		WriteTimeout: o.WriteTimeout, FenceDelay: o.FenceDelay, ByLoad: o.ByLoad,
	}
	cfg.SetDefaults()
	var seed [8]byte
	_, _ = rand.Read(seed[:]) // never fails
	for _, b := range seed {
		cfg.Seed = cfg.Seed<<8 | uint64(b)
	}
	if err := cfg.Validate(); err != nil {
		return cfg, fmt.Errorf("rota %s: %w", o.Name, err)
	}
	return cfg, nil
}

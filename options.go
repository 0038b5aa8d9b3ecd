package rota

import (
	"flag"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/engine"
	"github.com/rota-dev/rota/slot"
)

// Delivery selects how a member receives the objects of its slots.
type Delivery = sharding.Mode

// Deliveries. The zero value stands for DeliveryFilter.
const (
	// DeliveryFilter receives all objects of a kind and keeps its own. It works with any API server and any key.
	DeliveryFilter = sharding.Filter
	// DeliverySlotLabel selects objects by a label with their slot. The members write that label once in an object's life.
	// It works with any API server and with the keys Name and Namespace.
	DeliverySlotLabel = sharding.SlotLabel
	// DeliveryShardSelector has the API server select by the hash of metadata.uid. It needs Kubernetes 1.36 or later with
	// the feature gate ShardedListAndWatch, and key UID. If the server ignores the selector, it works as DeliveryFilter;
	// see Status.Traffic.
	DeliveryShardSelector = sharding.ShardSelector
)

// Options configure this process as a member of a rota. Only Name is required.
//
// All members of a rota must have the same Name, Namespace, Slots and Key. Kinds, Delivery and durations may differ
// only during a rollout. Even then, each RenewDeadline must be shorter than every LeaseDuration, and each WriteTimeout
// shorter than every FenceDelay. A member for which that does not hold waits before it joins.
type Options struct {
	// Name is the name of the rota, and of the ConfigMap with its table. It must be a DNS label.
	Name string
	// Namespace is where the ConfigMap and the Leases are. Default: POD_NAMESPACE, or the Pod's own namespace.
	Namespace string
	// Identity identifies this replica.
	Identity Identity

	// Slots is the number of slots, a power of two up to 4096. Default 256. At most that many members can work. It cannot
	// change while the table exists.
	Slots slot.Count
	// Key selects the part of an object that is hashed. Default slot.KeyName, and slot.KeyUID with DeliveryShardSelector.
	// It cannot change while the table exists.
	Key slot.Key
	// Delivery selects how this member receives the objects of its slots. Default DeliveryFilter. Members may differ in
	// it, so a rollout can change it. DeliveryShardSelector needs slot.KeyUID, and DeliverySlotLabel one of the other
	// keys.
	//
	// With DeliverySlotLabel the members label the objects that have no label yet. That needs the permissions that
	// docs/controller-runtime.md lists. Members receive objects once these are labelled.
	Delivery Delivery
	// Label makes the members label objects and children although Delivery is DeliveryFilter. Roll it out before a change
	// to DeliverySlotLabel, or with slot.KeyUID to DeliveryShardSelector. Then objects have their labels when the first
	// member selects by them. The labeller writes at most 200 objects a second.
	Label bool
	// LabelNamespaces limits labelling to these namespaces, for members whose informers are limited to them.
	// Default: all.
	LabelNamespaces []string
	// Weight scales this member's fair share. It is at least 1. Default 1.
	Weight int
	// MemberLabels are labels of this member for `rota pin`, which keeps some objects on members with given labels
	// (docs/operations.md). Names and values have the syntax of Kubernetes labels, 512 bytes in all. Default: none.
	MemberLabels map[string]string

	// Address makes this member reachable for others, for Rota.Forward, Rota.Owner, and events of a source.Channel, which
	// are forwarded to the owners of their objects. It is a port such as ":9444", or a host and a port; port 0 with a host
	// selects a free port. The member listens there with mutual TLS, and publishes the address in its Lease. Without a
	// host it publishes POD_IP. Set it on all members (docs/controller-runtime.md). By default members do not connect to
	// each other.
	Address string

	// ByLoad balances the cost of reconciles instead of the number of slots. Cost is seconds of work per second, relative
	// to the members' weights, as a moving average over some minutes. Slots move when a member has more than 1.2 times the
	// mean: a few at a time, each at most once in ten minutes, and not during rollouts (docs/deploy.md). No member gets
	// more than twice its share of the slots. All members must set ByLoad. While some do not, slots are balanced by
	// number, and if that lasts an event reports it (LoadsNotEven or SetupDiffers). Duties are always balanced by number.
	// Default: slots are balanced by number.
	ByLoad bool

	// LeaseDuration is the time from the last renewal that the other members saw until they take a member's slots. Default
	// 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long a member works after the start of its last successful renewal. Default two thirds of
	// LeaseDuration; it must be shorter than LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals; members of a rota of more than 500 renew less often. It is at most half
	// of RenewDeadline and a quarter of LeaseDuration. Default a fifth of RenewDeadline.
	RetryPeriod time.Duration
	// WriteTimeout is the server-side timeout of writes that are usually quick. Slow writes get more time: they must end
	// within 12/13 of LeaseDuration after the last renewal. It must be shorter than RenewDeadline. Default 2 s, or
	// 3/10 of RenewDeadline if that is shorter.
	WriteTimeout time.Duration
	// FenceDelay is the time that new owners wait before they work on the slots of an expelled member. It must be longer
	// than WriteTimeout. Default WriteTimeout + 0.5 s.
	FenceDelay time.Duration
	// LeaveTimeout bounds a graceful leave. When it has passed, Run returns an error, and slots that were not handed over
	// have no owner until the Lease expires. When 6 s of it are left, or half of it if that is less, reconciles that hold
	// up a handover are cut short: their contexts end, and the event CutShort names them. Keep it below
	// terminationGracePeriodSeconds. Default 25 s.
	LeaveTimeout time.Duration

	// ScrubPeriod is the time between two lists of all objects. The member with the scrub duty compares each list with
	// the objects that members hold (rule R14). Default: 1,000 times as long as a list takes, at most 10 minutes. It also
	// looks for slots with no owner or several, every 7/20 of LeaseDuration, and lists no more often than that.
	ScrubPeriod time.Duration

	// Group is the set of the program's controllers that this member runs. It is nil if the program is not divided into
	// groups. Each group is a separate rota, all in one namespace. The member with the scrub duty reports controllers that
	// are in no running group, or in several (event GroupsDiffer, Status.Gaps).
	Group *group.Group

	// LeaderElectionID and LeaderElectionNamespace name the Lease of the operator's stock leader election, as in
	// manager.Options of controller-runtime. With them, the whole rota is one candidate of that election. So a rolling
	// update can replace replicas with leader election by members, and back (docs/migrate.md). Members join at once and
	// are ready, but work only while the rota holds the Lease. Status.Waiting names another holder. The last member that
	// leaves releases the Lease. RenewDeadline must be shorter than the stock replicas' LeaseDuration. By default the rota
	// takes no part in an election. LeaderElectionNamespace defaults to Namespace. With Solo both are ignored.
	LeaderElectionID, LeaderElectionNamespace string

	// NoStockReplicas declares that no replica without Rota works under leader election, now or while this version is
	// rolled out. ctrlrt.NewManager needs it, or Solo, to accept manager.Options.LeaderElection for unsharded controllers.
	// It cannot be combined with LeaderElectionID.
	NoStockReplicas bool

	// Solo is for tests of an operator with envtest or fake clients. This process owns all slots and duties as soon as its
	// workers run, without a table or a Lease. Wiring is checked as usual, except that clients need not be wrapped if New
	// gets no config. Name and Namespace may be empty, and delivery works as DeliveryFilter. Two processes with Solo do
	// not coordinate. New refuses it in a Pod unless the program is a test.
	Solo bool

	// TracerProvider gets a trace of each handover, with spans of the members that took part: handover, warm, drain,
	// transfer, activate. Spans are sent when they have ended. Goroutines of the member call it, and it may block. Shut it
	// down after Run has returned: by then it has the last spans. Its sampler decides what is recorded. All members of a
	// handover use the same trace ID, below a sampled remote parent. With nil there are no traces.
	TracerProvider trace.TracerProvider

	// Logger is the member's logger. The default is the manager's logger with ctrlrt.NewManager. Otherwise, or if
	// controller-runtime has no logger, it is slog.Default at the time of New. logr.Discard counts as unset.
	Logger logr.Logger
}

// Identity identifies a replica. Empty fields are filled in from the environment variables POD_NAME and POD_UID (set
// them through the downward API) and CONTAINER_NAME (the container's name, set as a literal). Without POD_NAME, the
// replica is named after the host and the process ID.
type Identity struct {
	// Pod is the name of the replica, which stays the same when its container restarts. It is part of Lease names, so it
	// may contain lower-case letters, digits, "-" and ".", like the name of a Pod.
	Pod string
	// PodUID is metadata.uid of the Pod. With it, a restarted container takes over from its predecessor without waiting
	// for the Lease to expire, once in ten minutes. Container is the container's name in the Pod. It defaults to "main" if
	// PodUID is set, so it is needed only if one Pod runs several members.
	PodUID, Container string
	// Workload names the Deployment or StatefulSet of the Pod. Members of one workload may differ in kinds and options,
	// since a rollout may change them. Members of different workloads must have the same kinds and options, since two
	// Deployments may have the same rota name by mistake. Give workloads that belong together, such as a canary
	// Deployment, the same Workload. Default: the Pod's name without the suffix of a Deployment or a StatefulSet. For
	// other names it is empty (unknown).
	Workload string
	// Build is the version of the program. Members with different builds show that a rollout is under way. Default: the
	// ReplicaSet's part of the Pod's name, or the revision from which the binary was built.
	Build string
}

// engine converts the options to the engine's type.
func (o Options) engine() engine.Options {
	return engine.Options{
		Name: o.Name, Namespace: o.Namespace, Identity: engine.Identity(o.Identity), Slots: o.Slots, Key: o.Key,
		Delivery: o.Delivery, Label: o.Label, LabelNamespaces: o.LabelNamespaces, Weight: o.Weight,
		MemberLabels: o.MemberLabels, Address: o.Address, ByLoad: o.ByLoad,
		LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod,
		WriteTimeout: o.WriteTimeout, FenceDelay: o.FenceDelay, LeaveTimeout: o.LeaveTimeout, ScrubPeriod: o.ScrubPeriod,
		Group: o.Group, LeaderElectionID: o.LeaderElectionID, LeaderElectionNamespace: o.LeaderElectionNamespace,
		NoStockReplicas: o.NoStockReplicas, Solo: o.Solo, TracerProvider: o.TracerProvider, Logger: o.Logger,
	}
}

// BindFlags defines flags for options that differ between replicas and deployments. The current values are the
// defaults. Call it before the flags are parsed, and New afterwards.
func (o *Options) BindFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Namespace, "rota-namespace", o.Namespace,
		"namespace of the rota's ConfigMap and Leases (default: POD_NAMESPACE)")
	flags.StringVar(&o.Identity.Pod, "rota-pod", o.Identity.Pod, "name of this replica (default: POD_NAME)")
	flags.StringVar(&o.Identity.PodUID, "rota-pod-uid", o.Identity.PodUID, "UID of this replica's Pod (default: POD_UID)")
	flags.StringVar(&o.Identity.Workload, "rota-workload", o.Identity.Workload,
		"name of the Deployment or StatefulSet, the same for those that belong together, such as a canary (default: from "+
			"the Pod's name)")
	flags.StringVar(&o.Identity.Build, "rota-build", o.Identity.Build,
		"version of this program, by which a rollout is recognized (default: from the Pod's name, or the binary)")
	flags.Func("rota-member-labels", "labels of this replica that pins may ask for, such as pool=large,zone=a (default: "+
		"none)", func(list string) (err error) {
		o.MemberLabels, err = labels.ConvertSelectorToLabelsMap(list)
		return err
	})
	flags.StringVar(&o.Address, "rota-address", o.Address,
		"port, or host and port, where other members reach this one, such as :9444 (default: they do not)")
	flags.TextVar(&o.Delivery, "rota-delivery", o.Delivery,
		"how objects reach this member: Filter, SlotLabel or ShardSelector (default: Filter)")
	flags.BoolVar(&o.ByLoad, "rota-by-load", o.ByLoad,
		"share what reconciles cost between members, instead of the number of slots")
	flags.BoolVar(&o.Label, "rota-label", o.Label, "label objects although they are not delivered by labels yet")
	flags.Func("rota-label-namespaces", "namespaces in which objects are labelled, separated by commas, where informers "+
		"are limited to them (default: all)", func(list string) error {
		o.LabelNamespaces = strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
		return nil
	})
	flags.StringVar(&o.LeaderElectionID, "rota-leader-election-id", o.LeaderElectionID,
		"name of the Lease of stock leader election, while replicas with it are replaced (default: there is none)")
	flags.StringVar(&o.LeaderElectionNamespace, "rota-leader-election-namespace", o.LeaderElectionNamespace,
		"namespace of that Lease (default: that of the rota)")
	flags.DurationVar(&o.LeaseDuration, "rota-lease-duration", o.LeaseDuration,
		"how long others wait before they take a silent member's slots (0: 15s)")
	flags.DurationVar(&o.RenewDeadline, "rota-renew-deadline", o.RenewDeadline,
		"how long this member works after its last renewal (0: two thirds of the lease duration)")
	flags.DurationVar(&o.RetryPeriod, "rota-retry-period", o.RetryPeriod,
		"time between renewals (0: a fifth of the renew deadline)")
	flags.DurationVar(&o.WriteTimeout, "rota-write-timeout", o.WriteTimeout,
		"time that the API server may take for a write where writes are usually quick; slow ones get more (0: 2s)")
	flags.DurationVar(&o.FenceDelay, "rota-fence-delay", o.FenceDelay,
		"how long new owners of an expelled member's slots wait; must be longer than the write timeout (0: that and 0.5s)")
	flags.DurationVar(&o.LeaveTimeout, "rota-leave-timeout", o.LeaveTimeout,
		"longest time that this member takes to leave; below the Pod's terminationGracePeriodSeconds (0: 25s)")
	flags.DurationVar(&o.ScrubPeriod, "rota-scrub-period", o.ScrubPeriod,
		"time between two lists of all objects by the member that compares (0: 1000 times as long as a list, at most 10m)")
}

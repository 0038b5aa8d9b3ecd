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

// Delivery is how the objects of a member's slots reach it.
type Delivery = sharding.Mode

// Ways of delivery. The zero value is taken for DeliveryFilter.
const (
	// DeliveryFilter receives all objects of a kind and keeps its own. It works with any API server and any key.
	DeliveryFilter = sharding.Filter
	// DeliverySlotLabel asks for the objects whose label says that they are in the slots. The members write that label
	// once in an object's life. It works with any API server and with the keys Name and Namespace.
	DeliverySlotLabel = sharding.SlotLabel
	// DeliveryShardSelector has the API server select by the hash of metadata.uid. It needs Kubernetes 1.36 or later with
	// the feature gate ShardedListAndWatch, and key UID. If the server ignores the selector, it works as DeliveryFilter;
	// see Status.Traffic.
	DeliveryShardSelector = sharding.ShardSelector
)

// Options say which rota this process belongs to, and how it takes part. Only Name is required.
//
// All members of a rota must have the same Name, Namespace, Slots and Key. Kinds, Delivery and durations may differ
// only during a rollout. Even then, each RenewDeadline must be shorter than every LeaseDuration, and each WriteTimeout
// shorter than every FenceDelay. A member for which that does not hold waits before it joins.
type Options struct {
	// Name names the rota: the ConfigMap of that name holds its table. A DNS label.
	Name string
	// Namespace is where the ConfigMap and the Leases are. Default: POD_NAMESPACE, or the Pod's own namespace.
	Namespace string
	// Identity says which replica this is.
	Identity Identity

	// Slots is the number of slots, a power of two up to 4096. Default 256. At most that many members can work. It cannot
	// be changed while the table exists.
	Slots slot.Count
	// Key is what of an object is hashed. Default slot.KeyName, and slot.KeyUID with DeliveryShardSelector. It cannot
	// be changed while the table exists.
	Key slot.Key
	// Delivery is how the objects of this member's slots reach it. Default DeliveryFilter. Members may differ in it, so a
	// rollout can change it. But DeliveryShardSelector needs slot.KeyUID, and DeliverySlotLabel one of the other keys.
	//
	// With DeliverySlotLabel the members label the objects that have no label yet, which takes the permissions that
	// docs/controller-runtime.md lists. Objects come to members once they are labelled.
	Delivery Delivery
	// Label makes the members label objects and children although Delivery is DeliveryFilter. Roll it out before a change
	// to DeliverySlotLabel, or with slot.KeyUID to DeliveryShardSelector: then objects have their labels when the first
	// member selects by them. The labeller writes at most 200 objects a second.
	Label bool
	// LabelNamespaces limits the labelling to these namespaces, for members whose informers are limited to them.
	// Default: all.
	LabelNamespaces []string
	// Weight scales this member's fair share. It is at least 1. Default 1.
	Weight int
	// MemberLabels are what pins may ask for: `rota pin` has certain objects be with members that have certain labels
	// (docs/operations.md). Names and values are as those of Kubernetes' labels, 512 bytes in all. Default: none.
	MemberLabels map[string]string

	// ByLoad makes the members share the cost of reconciles instead of the number of slots: seconds of work per second,
	// relative to their weights, as a moving average over some minutes. Slots move when a member has more than 1.2 times
	// the mean, a few at a time, each at most once in ten minutes, and not during rollouts (docs/deploy.md). No member
	// gets more than twice its share of the slots. All members must set it: while some do not, slots are planned by
	// number, and if that lasts an event reports it (LoadsNotEven or SetupDiffers). Duties are always spread by number.
	// Default: slots are shared by number.
	ByLoad bool

	// LeaseDuration is how long other members wait after the last renewal that they saw before they take a member's slots.
	// Default 15 s.
	LeaseDuration time.Duration
	// RenewDeadline is how long a member works after the start of its last successful renewal. Default two thirds of
	// LeaseDuration; it must be shorter than LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals; members of a rota of more than 500 renew less often. It is at most half
	// of RenewDeadline and a quarter of LeaseDuration. Default a fifth of RenewDeadline.
	RetryPeriod time.Duration
	// WriteTimeout is the server-side timeout of a write where writes are usually quick. Slow ones get more: they must end
	// within 12/13 of LeaseDuration after the last renewal. It must be shorter than RenewDeadline. Default 2 s, or
	// 3/10 of RenewDeadline if shorter.
	WriteTimeout time.Duration
	// FenceDelay is how long new owners wait before they work on the slots of a member that was expelled. It must
	// be longer than WriteTimeout. Default WriteTimeout + 0.5 s.
	FenceDelay time.Duration
	// LeaveTimeout bounds a graceful leave. When it has passed, Run returns an error, and the slots that could not be
	// handed over wait until the Lease expires. When 6 s of it are left, or half of it if that is less, reconciles that
	// keep a slot from being handed over are cut short: their contexts end, and the event CutShort names them. Keep it
	// below terminationGracePeriodSeconds. Default 25 s.
	LeaveTimeout time.Duration

	// ScrubPeriod is the time between two lists of all objects. The member with the scrub duty compares them with what
	// members hold (rule R14). Default: 1,000 times as long as a list takes, at most 10 minutes. Whatever it is, slots
	// without an owner and slots with several are looked for every 7/20 of LeaseDuration, and lists are not made more
	// often than that.
	ScrubPeriod time.Duration

	// Group says which of the program's controllers this member runs, if the program is divided into groups; nil: it is
	// not. Each group is a rota of its own, all in one namespace. The member with the scrub duty in each reports
	// controllers that are in no group that runs, or in several (event GroupsDiffer, Status.Gaps).
	Group *group.Group

	// LeaderElectionID and LeaderElectionNamespace name the Lease of the operator's stock leader election, as in
	// manager.Options of controller-runtime. With them, the rota as a whole is one candidate of that election, so that a
	// rolling update replaces replicas with leader election by members, and back (docs/migrate.md). Members join at once,
	// and are ready, but work only while the rota holds the Lease; Status.Waiting says who does. The last member that
	// leaves releases it. RenewDeadline must be shorter than the stock replicas' LeaseDuration. Default: there is no such
	// Lease. The default of LeaderElectionNamespace is Namespace. With Solo both are ignored.
	LeaderElectionID, LeaderElectionNamespace string

	// NoStockReplicas declares that no replica runs that works under leader election without Rota, nor will while this
	// version is rolled out. ctrlrt.NewManager needs it, or Solo, to accept manager.Options.LeaderElection, which
	// unsharded controllers may use. It cannot be combined with LeaderElectionID.
	NoStockReplicas bool

	// Solo is for tests of an operator, with an API server of their own (envtest) or with fake clients: this process owns
	// all slots and duties as soon as its workers run. There is no table, no Lease and nothing to wait for. Wiring is
	// checked as ever, but for wrapped clients where New gets no config. Name and Namespace may be empty, and objects are
	// delivered as with DeliveryFilter. Two processes with Solo do not know of each other. New refuses it in a Pod whose
	// program is no test.
	Solo bool

	// TracerProvider gets a trace of each handover, with spans of the members that took part: handover, warm, drain,
	// transfer, activate. They are sent when they have ended. It is called by goroutines of the member, and may block; Run
	// returns when it has the last spans, so shut it down after that. Its sampler decides: all members of a handover have
	// the same trace ID, below a remote parent that is sampled. nil: no traces.
	TracerProvider trace.TracerProvider

	// Logger gets what people should know. Default: the manager's, with ctrlrt.NewManager; slog.Default at the time of New
	// otherwise, or if controller-runtime has no logger. logr.Discard counts as unset.
	Logger logr.Logger
}

// Identity says which replica a process is. Empty fields are filled in from the environment variables POD_NAME and
// POD_UID (set them through the downward API) and CONTAINER_NAME (the container's name, set as a literal). Without
// POD_NAME, the host name and the process ID name the replica.
type Identity struct {
	// Pod names the replica and outlives a restart of its container. It is part of Lease names, so it may have lower case
	// letters, digits, "-" and ".", as names of Pods do.
	Pod string
	// PodUID is metadata.uid of the Pod. With it, a restarted container takes over from its predecessor without waiting
	// for its Lease, once in ten minutes. Container is the container's name in the Pod. It defaults to "main" if PodUID is
	// set, so it is needed only if one Pod runs several members.
	PodUID, Container string
	// Workload names the Deployment or StatefulSet of the Pod. Members of one workload may differ in kinds and options,
	// since a rollout may change them. Members of different workloads must be set up alike, since two Deployments may have
	// got one rota name by mistake. Give workloads that belong together, such as a canary Deployment, the same name.
	// Default: the Pod's name without the suffix of a Deployment or a StatefulSet; empty (unknown) for other names.
	Workload string
	// Build names the version of the program, by which a rollout is recognized. Default: the ReplicaSet's part of the
	// Pod's name, or the revision from which the binary was built.
	Build string
}

// engine returns the same options as the engine has them.
func (o Options) engine() engine.Options {
	return engine.Options{
		Name: o.Name, Namespace: o.Namespace, Identity: engine.Identity(o.Identity), Slots: o.Slots, Key: o.Key,
		Delivery: o.Delivery, Label: o.Label, LabelNamespaces: o.LabelNamespaces, Weight: o.Weight,
		MemberLabels: o.MemberLabels, ByLoad: o.ByLoad, LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline,
		RetryPeriod: o.RetryPeriod, WriteTimeout: o.WriteTimeout, FenceDelay: o.FenceDelay, LeaveTimeout: o.LeaveTimeout,
		ScrubPeriod: o.ScrubPeriod, Group: o.Group, LeaderElectionID: o.LeaderElectionID,
		LeaderElectionNamespace: o.LeaderElectionNamespace, NoStockReplicas: o.NoStockReplicas, Solo: o.Solo,
		TracerProvider: o.TracerProvider, Logger: o.Logger,
	}
}

// BindFlags defines flags for options that differ between replicas and deployments. The present values are the
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

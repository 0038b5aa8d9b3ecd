package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/permission"
)

// warningAge is how far back warnings are read. By default an API server keeps events that long.
const warningAge = time.Hour

// ErrNoRota is returned by Read if there is no table of that name.
var ErrNoRota = errors.New("there is no ConfigMap of that name")

// ErrTableLost is returned together with ErrNoRota if members have Leases but there is no table. This also happens
// briefly at the first start of a rota.
var ErrTableLost = errors.New("it was deleted, unless the members are the first and have just started; in either " +
	"case they create one, which takes a lease")

// ErrTable is returned by Read if the table cannot be parsed.
var ErrTable = errors.New("the table is invalid")

// ErrNewer is returned by Read if a newer release wrote the table.
var ErrNewer = errors.New("a newer release wrote the table; it is not broken, so do not delete it: use the command " +
	"rota of the operator's release")

// Reader reads one rota repeatedly. It keeps its clients, and remembers when it first saw temporary conditions. It is
// safe for concurrent use.
type Reader struct {
	rota    types.NamespacedName
	cfg     *rest.Config
	client  kubernetes.Interface
	store   *store.Kubernetes
	reports *coverage.Reports

	mu     sync.Mutex
	seen   memory
	served served
}

// Read reads a rota once. See Reader.Read for its error.
func Read(ctx context.Context, cfg *rest.Config, namespace, name string) (*Rota, error) {
	r, err := NewReader(cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Read(ctx)
}

// NewReader returns a Reader. It sends no request.
func NewReader(cfg *rest.Config, namespace, name string) (*Reader, error) {
	asking := rest.CopyConfig(cfg)
	asking.Wrap(func(inner http.RoundTripper) http.RoundTripper { return dating{inner} })
	client, err := kubernetes.NewForConfig(asking)
	if err != nil {
		return nil, err
	}
	reports, err := coverage.NewReports(cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	kube, err := store.NewKubernetes(cfg, store.Options{Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	rota := types.NamespacedName{Namespace: namespace, Name: name}
	return &Reader{rota: rota, cfg: cfg, client: client, store: kube, reports: reports}, nil
}

// Close ends the reader's connections.
func (r *Reader) Close() { r.store.Close() }

// Read reads the rota now. Rota.Unknown lists what else could not be read if the table could. The error wraps
// ErrNoRota, ErrTable, ErrNewer, or the API server's error.
func (r *Reader) Read(ctx context.Context) (*Rota, error) {
	in := input{rota: r.rota}
	unknown := func(what string, err error) {
		if err != nil {
			in.unknown = append(in.unknown, Unknown{what, err.Error(), err})
		}
	}
	// Read Leases and reports first, so the table is never older than the epochs in them.
	leases, listed, leasesErr := r.leases(ctx)
	reports, err := r.reports.Read(ctx)
	unknown("reports", err)
	in.reports, in.noReports = reports, err != nil
	snapshot, err := r.store.ReadTable(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("rota %s: %w", r.rota, err)
	case errors.Is(snapshot.Err, table.ErrFormat):
		return nil, fmt.Errorf("rota %s: %w: %w", r.rota, ErrNewer, snapshot.Err)
	case snapshot.Err != nil:
		return nil, fmt.Errorf("rota %s: %w: %w", r.rota, ErrTable, snapshot.Err)
	case snapshot.Missing():
		return nil, fmt.Errorf("rota %s: %w", r.rota, r.noRota(ctx, leases))
	}
	in.table, in.uid = snapshot.Table, snapshot.UID
	in.seenEpoch = seenEpoch(leases, in.uid)
	if leasesErr == nil && missingLease(in.table, leases) { // a member joined in between
		leases, listed, leasesErr = r.leases(ctx)
	}
	unknown("Leases", leasesErr)
	in.leases, in.listed, in.noLeases = leases, listed, leasesErr != nil
	in.warnings, in.notices, err = r.events(ctx)
	unknown("warnings", err)
	if state, err := fence.Look(ctx, r.cfg, r.rota); err != nil {
		unknown("fence", err)
		in.fence = "unknown"
	} else {
		in.fence, in.fenceState = state.String(), state
	}
	in.at = time.Now()
	in.gone, err = r.notServed(ctx, in.reports, in.at)
	unknown("kinds", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.look(in), nil
}

// seenEpoch returns the highest epoch of the table with that UID in the Leases.
func seenEpoch(leases map[string]coordinationv1.Lease, uid string) (highest uint64) {
	for _, l := range leases {
		highest = max(highest, epochOf(l, uid))
	}
	return highest
}

// noRota explains why there may be no table, based on the remaining Leases and the namespace.
func (r *Reader) noRota(ctx context.Context, leases map[string]coordinationv1.Lease) error {
	if len(leases) > 0 {
		return fmt.Errorf("%w, but %d members have Leases: %w", ErrNoRota, len(leases), ErrTableLost)
	}
	return fmt.Errorf("%w: %s", ErrNoRota, WhyNone(ctx, r.client, r.rota.Namespace))
}

// WhyNone explains why a namespace may have no rota, or not the expected one.
func WhyNone(ctx context.Context, client kubernetes.Interface, namespace string) string {
	ns, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("there is no namespace %s. It was deleted, with the table and the members' Leases, or it has "+
			"another name: give its namespace with -n", namespace)
	case err == nil && ns.DeletionTimestamp != nil:
		return fmt.Sprintf("namespace %s has been terminating since %s, with the table and the members' Leases: members "+
			"work on nothing", namespace, ns.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
	return "no member has ever started there, the ConfigMap was deleted together with the members' Leases, or the rota " +
		"is in another namespace: give its namespace with -n"
}

func missingLease(t *table.Table, leases map[string]coordinationv1.Lease) bool {
	return slices.ContainsFunc(t.Members, func(m table.Member) bool { _, ok := leases[m.ID]; return !ok })
}

// leases returns the members' Leases by holder, and when they were listed.
func (r *Reader) leases(ctx context.Context) (map[string]coordinationv1.Lease, listing, error) {
	at := listing{begun: time.Now()}
	ctx, date := withDate(ctx)
	list, err := r.client.CoordinationV1().Leases(r.rota.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: names.LabelRota + "=" + r.rota.Name})
	if err != nil {
		return nil, at, permission.Refused(err, permission.Error{Namespace: r.rota.Namespace,
			Group: coordinationv1.GroupName, Resource: "leases", Verb: "list"})
	}
	at.ended, at.date = time.Now(), *date
	out := map[string]coordinationv1.Lease{}
	for _, l := range list.Items {
		out[ptr.Deref(l.Spec.HolderIdentity, "")] = l
	}
	return out, at, nil
}

// events returns the rota's events of the last hour: warnings and notices, each oldest first. Only events show that a
// process waits before it joins, or that its reconciles all fail.
func (r *Reader) events(ctx context.Context) (warnings, notices []Warning, err error) {
	list, err := r.client.CoreV1().Events(r.rota.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{
			"involvedObject.kind": "ConfigMap", "involvedObject.name": r.rota.Name,
		}.String(),
	})
	if err != nil {
		return nil, nil, permission.Refused(err, permission.Error{Namespace: r.rota.Namespace, Resource: "events",
			Verb: "list"})
	}
	now := time.Now()
	return eventsOf(list.Items, corev1.EventTypeWarning, now), eventsOf(list.Items, corev1.EventTypeNormal, now), nil
}

// eventsOf returns the events of a type in the last hour.
func eventsOf(events []corev1.Event, kind string, now time.Time) []Warning {
	var out []Warning
	for _, e := range events {
		at := e.EventTime.Time
		if at.IsZero() {
			at = e.LastTimestamp.Time
		}
		if e.Type == kind && now.Sub(at) <= warningAge {
			out = append(out, Warning{At: at, Member: cmp.Or(e.ReportingInstance, e.Source.Host), Reason: e.Reason,
				Message: e.Message})
		}
	}
	slices.SortStableFunc(out, func(a, b Warning) int { return a.At.Compare(b.At) })
	return out
}

// Epochs returns the highest epoch in the Leases of a rota's members for each table UID.
func (r *Reader) Epochs(ctx context.Context) (map[string]uint64, error) {
	leases, _, err := r.leases(ctx)
	highest := map[string]uint64{}
	for _, l := range leases {
		uid := l.Annotations[names.AnnotationTableUID]
		highest[uid] = max(highest[uid], epochOf(l, uid))
	}
	return highest, err
}

// epochOf returns the highest epoch of the table with that UID in a Lease, or 0.
func epochOf(l coordinationv1.Lease, uid string) uint64 {
	if l.Annotations[names.AnnotationTableUID] != uid {
		return 0
	}
	epoch, err := strconv.ParseUint(l.Annotations[names.AnnotationEpoch], 10, 64)
	if err != nil {
		return 0
	}
	return epoch
}

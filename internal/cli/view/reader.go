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

// warningAge is how far back warnings are read: an API server keeps events for as long by default.
const warningAge = time.Hour

// ErrNoRota is wrapped by the error of Read if there is no table of that name.
var ErrNoRota = errors.New("there is no ConfigMap of that name")

// ErrTableLost is wrapped together with ErrNoRota if members have Leases although there is no table. At the first start
// of a rota that is so, too.
var ErrTableLost = errors.New("unless they are the first and have just started, it was deleted; in either case they " +
	"make one, which takes a lease")

// ErrTable is wrapped by the error of Read if there is a table that cannot be read.
var ErrTable = errors.New("the table is invalid")

// ErrNewer is wrapped by the error of Read if there is a table that a newer release wrote.
var ErrNewer = errors.New("a newer release wrote the table; it is not broken, so do not delete it: use the command " +
	"rota of the operator's release")

// Reader reads one rota again and again. It keeps its clients, and remembers since when it has seen what should not
// last. It is safe for concurrent use.
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

// Read reads a rota once. The error is as that of Reader.Read.
func Read(ctx context.Context, cfg *rest.Config, namespace, name string) (*Rota, error) {
	r, err := NewReader(cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Read(ctx)
}

// NewReader returns a Reader. It makes no request.
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

// Close closes connections.
func (r *Reader) Close() { r.store.Close() }

// Read reads the rota now. What else than the table cannot be read is in Rota.Unknown. The error wraps ErrNoRota,
// ErrTable, ErrNewer, or that of the API server.
func (r *Reader) Read(ctx context.Context) (*Rota, error) {
	in := input{rota: r.rota}
	unknown := func(what string, err error) {
		if err != nil {
			in.unknown = append(in.unknown, Unknown{what, err.Error(), err})
		}
	}
	// Leases and reports come before the table: it is then never older than what they tell of it.
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
	in.told = toldBy(leases, in.uid)
	if leasesErr == nil && lacks(in.table, leases) { // it joined in between
		leases, listed, leasesErr = r.leases(ctx)
	}
	unknown("Leases", leasesErr)
	in.leases, in.listed, in.noLeases = leases, listed, leasesErr != nil
	in.warnings, in.notices, err = r.events(ctx)
	unknown("warnings", err)
	if state, err := fence.Look(ctx, r.cfg, r.rota); err != nil {
		unknown("fence", err)
		in.fence = "not known"
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

// toldBy returns the highest epoch of the table with that UID that the Leases tell of.
func toldBy(leases map[string]coordinationv1.Lease, uid string) (told uint64) {
	for _, l := range leases {
		told = max(told, epochOf(l, uid))
	}
	return told
}

// noRota says why there may be no table, by the Leases that are left, and by its namespace.
func (r *Reader) noRota(ctx context.Context, leases map[string]coordinationv1.Lease) error {
	if len(leases) > 0 {
		return fmt.Errorf("%w, but %d members have Leases: %w", ErrNoRota, len(leases), ErrTableLost)
	}
	return fmt.Errorf("%w: %s", ErrNoRota, WhyNone(ctx, r.client, r.rota.Namespace))
}

// WhyNone says why a namespace may have no rota, or not the one that is looked for.
func WhyNone(ctx context.Context, client kubernetes.Interface, namespace string) string {
	ns, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("there is no namespace %s. It was deleted, with the table and the members' Leases, or it has "+
			"another name: give its namespace with -n", namespace)
	case err == nil && ns.DeletionTimestamp != nil:
		return fmt.Sprintf("namespace %s is being deleted since %s, with the table and the members' Leases: members work on "+
			"nothing", namespace, ns.DeletionTimestamp.UTC().Format(time.RFC3339))
	}
	return "no member has ever started there, the ConfigMap was deleted together with the members' Leases, or the rota " +
		"is in another namespace: give its namespace with -n"
}

func lacks(t *table.Table, leases map[string]coordinationv1.Lease) bool {
	return slices.ContainsFunc(t.Members, func(m table.Member) bool { _, ok := leases[m.ID]; return !ok })
}

// leases returns the members' Leases, by their holders, and when they were listed.
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

// events returns the events of the last hour about the rota, warnings and others, each oldest first. Elsewhere, only
// the process itself shows that it waits before it joins, or that its reconciles all fail.
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

// eventsOf returns the events of a type of the last hour.
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

// Told returns the highest epochs that the Leases of a rota's members tell of, by the UID of the table.
func (r *Reader) Told(ctx context.Context) (map[string]uint64, error) {
	leases, _, err := r.leases(ctx)
	told := map[string]uint64{}
	for _, l := range leases {
		uid := l.Annotations[names.AnnotationTableUID]
		told[uid] = max(told[uid], epochOf(l, uid))
	}
	return told, err
}

// epochOf returns the highest epoch of the table with that UID that a Lease tells of; 0: none.
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

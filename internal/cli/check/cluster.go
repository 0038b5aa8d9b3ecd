package check

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/serving"
	"github.com/rota-dev/rota/internal/names"
)

// maxSkew is the tolerated difference between clocks. Rota's guarantees only depend on clock rates, but displayed
// deadlines are off by the difference. The API server reports its time in whole seconds.
const maxSkew = 5 * time.Second

// cluster checks the API server. It returns an error if the first request fails.
func (r *run) cluster(ctx context.Context) error {
	dates := &dates{}
	cfg := rest.CopyConfig(r.cfg)
	cfg.Wrap(dates.wrap)
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	version, err := disco.ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	r.good(groupCluster, codeVersion, "the API server answers: Kubernetes %s", version.GitVersion)
	if r.Pre {
		r.tried(version.GitVersion)
	}
	for _, need := range []struct{ version, resource, since string }{
		{"coordination.k8s.io/v1", "leases", "1.14"}, {"events.k8s.io/v1", "events", "1.19"},
	} {
		served, err := serving.Resource(disco, need.version, need.resource)
		if err != nil {
			r.unknown(groupCluster, "whether the API server serves "+need.resource+" of "+need.version, err)
		} else if !served {
			r.fail(groupCluster, codeVersion, "use Kubernetes "+need.since+" or newer",
				"the API server does not serve %s of %s, which members need", need.resource, need.version)
		}
	}
	r.policies(disco)
	if at, ahead, ok := dates.last(); ok {
		r.clock(at, ahead)
	}
	return ctx.Err()
}

// clock checks this machine's clock, given how far it is ahead of the API server's.
func (r *run) clock(at time.Time, ahead time.Duration) {
	if ahead.Abs() <= maxSkew {
		r.good(groupCluster, codeClock, "this machine's clock agrees with the API server's")
		return
	}
	r.warn(groupCluster, codeClock, "synchronize this machine's clock. Until then, ages and deadlines that rota shows "+
		"are off by that much; members are not affected", "this machine's clock (%s) is %s", at.UTC().Format(time.RFC3339),
		aheadText(ahead)+" the API server's")
}

func aheadText(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%s behind", d.Abs().Round(time.Second))
	}
	return fmt.Sprintf("%s ahead of", d.Round(time.Second))
}

// unknown adds a warning that something could not be checked.
func (r *run) unknown(group, what string, err error) {
	cure := "try again, or look at the API server"
	if apierrors.IsForbidden(err) || strings.Contains(err.Error(), "may not") {
		cure = "ask for that permission, or run it as a user who has it"
	}
	r.warn(group, codeUnknown, cure, "not known: %s: %s", what, oneLine(err))
}

// policies checks whether a fence is possible. Package fence uses v1.
func (r *run) policies(disco discovery.DiscoveryInterface) {
	version, err := serving.Policies(disco)
	also := ""
	switch {
	case err != nil:
		r.unknown(groupCluster, "whether the API server serves ValidatingAdmissionPolicies", err)
		return
	case version == "v1":
		return
	case version != "":
		also = ", only of " + version
	}
	r.warn(groupCluster, codeVersion, "for that, use Kubernetes 1.30 or newer", "the API server does not serve "+
		"validatingadmissionpolicies of admissionregistration.k8s.io/v1%s: a fence is not possible", also)
}

// dates compares the API server's clock, from the Date header of its answers, with this machine's.
type dates struct {
	mu    sync.Mutex
	at    time.Time
	ahead time.Duration
	known bool
}

func (d *dates) last() (at time.Time, ahead time.Duration, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at, d.ahead, d.known
}

func (d *dates) wrap(inner http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		begun := time.Now()
		answer, err := inner.RoundTrip(req)
		if err != nil {
			return answer, err
		}
		if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			// The server wrote its time between the request and now, without the fraction of the second.
			now := time.Now()
			middle := begun.Add(now.Sub(begun) / 2)
			d.at, d.ahead, d.known = now, middle.Sub(date)-time.Second/2, true
		}
		return answer, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// free checks whether the rota's name is free.
func (r *run) free(ctx context.Context) {
	if r.Rota.Name == "" {
		return
	}
	cm, err := r.client.CoreV1().ConfigMaps(r.Rota.Namespace).Get(ctx, r.Rota.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.good(groupTable, codeName, "the name is free: there is no ConfigMap %s", r.Rota)
	case err != nil:
		r.unknown(groupTable, "whether the name is free", err)
	case cm.Labels[names.LabelRota] == cm.Name:
		r.good(groupTable, codeName, "there is a rota %s: `rota check` without --pre checks it", r.Rota)
	default:
		r.fail(groupTable, codeName, "give the rota another Options.Name, or move that ConfigMap's data to "+
			"another name and delete it",
			"ConfigMap %s is not a rota's: members would refuse to overwrite it", r.Rota)
	}
}

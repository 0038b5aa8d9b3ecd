package rotatest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/habits"
	"github.com/rota-dev/rota/test/require"
)

// try runs an operator with one member and then with these faults. It returns the report of each that it does not
// survive, by the fault's name; "reference" is the run with one member.
func try(t *testing.T, o habits.Operator, change func(*Options, *kit), names ...string) map[string]string {
	t.Helper()
	cfg, namespace := controlplane.For(t).Config(), controlplane.Namespace(t)
	before := goleak.IgnoreCurrent()
	defer func() { // idle connections end later
		goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"))
	}()
	k := &kit{}
	options := Options{Config: cfg, Setup: o.Setup, Objects: habits.Items(namespace, 6), Change: habits.Edit(namespace)}
	change(&options, k)
	options, err := options.withDefaults()
	require.NoError(t, err)
	defer alone(cfg.Host)()
	seed, patience := max(1, k.seed), k.patience
	if k, err = newKit(t.Context(), options, seed); err != nil {
		t.Fatal(err)
	}
	defer func() {
		require.NoError(t, k.close())
	}()
	if patience > 0 {
		k.patience = patience
	}
	defer func() { // whatever happened
		c, err := client.New(cfg, client.Options{})
		require.NoError(t, err)
		for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}} {
			require.NoError(t, c.List(t.Context(), list, client.InNamespace(namespace)))
			if n := len(namesIn(list)); n > 0 {
				t.Errorf("%d objects are left in a %T", n, list)
			}
		}
	}()
	begun := time.Now()
	want, err := k.reference(t.Context())
	t.Logf("reference: %v", time.Since(begun))
	if err != nil {
		return map[string]string{"reference": err.Error()}
	}
	failed := map[string]string{}
	for _, f := range faults {
		if len(names) > 0 && !strings.Contains(strings.Join(names, " "), f.name) {
			continue
		}
		begun := time.Now()
		report, err := k.try(t.Context(), f, want)
		t.Logf("%s: %v: %s", f.name, time.Since(begun), report)
		if err != nil {
			failed[f.name] = report
		}
	}
	if len(failed) > 0 && strings.Contains(strings.Join(names, " "), "again") {
		if report, same := k.again(t.Context(), want); !same {
			failed["again"] = report
		}
	}
	return failed
}

func namesIn(list client.ObjectList) []string {
	var names []string
	switch list := list.(type) {
	case *corev1.ConfigMapList:
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	case *corev1.SecretList:
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("SLOW") == "" {
		t.Skip("only with SLOW=1: make check WHAT=slow")
	}
}

// Each of these operators has a bug that a test with one member does not find. One fault does, and two members without
// a fault do not, unless sharing is the fault.
func TestPlantedBugs(t *testing.T) {
	for i, c := range habits.Mistakes() {
		t.Run(c.Name, func(t *testing.T) {
			with := []string{"share", c.Fault}
			if i > 0 {
				slow(t)
			} else if os.Getenv("SLOW") == "" {
				with = with[1:]
			}
			if c.Fault == "kill" { // what a death between two writes breaks, a timeout does, too
				with = append(with, "timeout")
			}
			failed := try(t, c.Operator, func(*Options, *kit) {}, with...)
			if c.Fault == "kill" && !strings.Contains(failed["timeout"], c.Says[0]) {
				t.Errorf("the report of timeout does not say %q", c.Says[0])
			}
			for _, text := range c.Says {
				if !strings.Contains(failed[c.Fault], text) {
					t.Errorf("the report does not say %q", text)
				}
			}
			if c.Fault != "share" && failed["share"] != "" {
				t.Error("it fails without a fault, too")
			}
		})
	}
}

// An operator without such bugs survives all faults, with any seed.
func TestCorrect(t *testing.T) {
	slow(t)
	for seed := range uint64(5) {
		how := func(o *Options, k *kit) {
			k.seed = seed + 1
			o.Rota.Delivery = []rota.Delivery{rota.DeliveryFilter, rota.DeliverySlotLabel}[seed%2]
			o.Manager.LeaderElection = seed > 2
		}
		if failed := try(t, habits.Correct, how); len(failed) > 0 {
			t.Errorf("seed %d: %d faults", seed+1, len(failed))
		}
	}
}

// lossy loses the answer to each third creation of a Secret.
type lossy struct {
	next    http.RoundTripper
	created atomic.Int32
}

func (l *lossy) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil && req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/secrets") && l.created.Add(1)%3 == 0 {
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
	}
	return resp, err
}

func TestReports(t *testing.T) {
	hasty := func(_ *Options, k *kit) { k.patience = 5 * time.Second }
	for i, c := range []struct {
		name  string
		of    habits.Operator
		how   func(*Options, *kit)
		fault string
		says  []string
	}{
		{"nothing is written", habits.Idle, hasty, "reference", []string{"the operator wrote nothing"}},
		{"a finalizer stays", habits.Clinging, hasty, "reference", []string{
			`phase "delete"`, "was deleted, and is still there, with the finalizers [habits.example.com/clinging]"}},
		{"a reconcile wakes itself", habits.Restless, hasty, "reference", []string{
			`phase "create"`, "written again and again", "update configmaps", "/item-"}},
		{"other members' objects are written", habits.Meddling, hasty, "share", []string{
			"is an object of member-", "and was written by another member: update configmaps"}},
		{"other members' objects are written on purpose", habits.Meddling, func(o *Options, _ *kit) { o.ForeignWrites = true },
			"share", nil},
		{"somebody else writes", habits.Correct, func(o *Options, _ *kit) {
			namespace, cfg := o.Objects[1].GetNamespace(), rest.CopyConfig(o.Config)
			o.Change = func(ctx context.Context, _ client.Client) error {
				other, err := client.New(cfg, client.Options{}) // what it does is not recorded
				if err != nil {
					return err
				}
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "item-1"}}
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"by":"%d"}}}`, time.Now().UnixNano())
				return other.Patch(ctx, cm, client.RawPatch(types.MergePatchType, []byte(patch)))
			}
		}, "share", []string{"Another client also wrote these objects", "/item-1 by "}},
		{"answers of creations get lost", habits.Correct, func(o *Options, _ *kit) {
			o.Config = rest.CopyConfig(o.Config)
			o.Config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &lossy{next: next} })
		}, "share", nil},
		{"two runs differ", habits.Random, hasty, "again", []string{"also with one member", "Options.Normalize",
			"metadata.annotations.random"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i > 0 {
				slow(t)
			}
			failed := try(t, c.of, c.how, "share", c.fault)
			if c.says == nil && len(failed) > 0 {
				t.Errorf("it fails: %v", failed)
			}
			for _, text := range c.says {
				if !strings.Contains(failed[c.fault], text) {
					t.Errorf("the report of %s does not say %q: %s", c.fault, text, failed[c.fault])
				}
			}
		})
	}
}

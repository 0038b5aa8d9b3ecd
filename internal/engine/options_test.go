package engine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/features"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func TestOptionsSayWhatToChange(t *testing.T) {
	valid := Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}}
	tests := []struct {
		name   string
		change func(*Options)
		words  []string // of the error; none: it is valid
	}{
		{"defaults", func(*Options) {}, nil},
		{"no name", func(o *Options) { o.Name = "" }, []string{"Options.Name is empty"}},
		{"bad name", func(o *Options) { o.Name = "My_Rota" }, []string{`Options.Name "My_Rota"`, "lower case"}},
		{"long name", func(o *Options) { o.Name = strings.Repeat("a", 64) }, []string{"Options.Name", "63"}},
		{"bad namespace", func(o *Options) { o.Namespace = "a.b" }, []string{`Options.Namespace "a.b"`}},
		{"no namespace", func(o *Options) { o.Namespace = "" }, []string{"Options.Namespace is empty", "POD_NAMESPACE"}},
		{"slot count", func(o *Options) { o.Slots = 100 }, []string{"slot count 100", "power of two"}},
		{"too many slots", func(o *Options) { o.Slots = 8192 }, []string{"slot count 8192", "4096"}},
		{"lease too short", func(o *Options) { o.LeaseDuration, o.RenewDeadline = 5*time.Second, 10*time.Second },
			[]string{"LeaseDuration 5s", "RenewDeadline 10s", "must be longer"}},
		{"renewal too slow", func(o *Options) { o.RetryPeriod = 8 * time.Second }, []string{"RetryPeriod 8s"}},
		{"write timeout", func(o *Options) { o.WriteTimeout = 20 * time.Second },
			[]string{"WriteTimeout 20s", "RenewDeadline"}},
		{"fence delay", func(o *Options) { o.FenceDelay = time.Second }, []string{"FenceDelay 1s", "WriteTimeout"}},
		{"negative", func(o *Options) { o.LeaseDuration = -time.Second }, []string{"LeaseDuration -1s", "above 0"}},
		{"leave timeout", func(o *Options) { o.LeaveTimeout = -1 }, []string{"LeaveTimeout"}},
		{"pod name", func(o *Options) { o.Identity.Pod = "two words" },
			[]string{`Options.Identity.Pod "two words"`, "POD_NAME", "Lease", "lower case"}},
		{"pod name with capitals", func(o *Options) { o.Identity.Pod = "Web_0" },
			[]string{`Options.Identity.Pod "Web_0"`, "lower case"}},
		{"pod name that ends with a dot", func(o *Options) { o.Identity.Pod = "web-0." },
			[]string{`Options.Identity.Pod "web-0."`, "lower case"}},
		{"pod name with dots", func(o *Options) { o.Identity.Pod = "web-0.web.example.com" }, nil},
		{"long pod name", func(o *Options) { o.Identity.Pod = strings.Repeat("a", 240) },
			[]string{"Options.Identity.Pod", "at most 239 characters"}},
		{"longest pod name", func(o *Options) { o.Identity.Pod = strings.Repeat("a", 239) }, nil},
		{"workload of two lines", func(o *Options) { o.Identity.Workload = "a\nb" }, []string{`Workload "a\nb"`, "one line"}},
		{"build of two words", func(o *Options) { o.Identity.Build = "v 7" }, []string{`build "v 7"`, "one printable word"}},
		{"labels with key UID", func(o *Options) { o.Label = true; o.Key = slot.KeyUID }, nil},
		{"slot label with key UID", func(o *Options) { o.Delivery = sharding.SlotLabel; o.Key = slot.KeyUID },
			[]string{"SlotLabel", "UID", "ShardSelector"}},
		{"shard selector with key Name", func(o *Options) { o.Delivery = sharding.ShardSelector; o.Key = slot.KeyName },
			[]string{"ShardSelector", "Name", "UID"}},
		{"shard selector", func(o *Options) { o.Delivery = sharding.ShardSelector }, nil},
		{"no such key", func(o *Options) { o.Key = 77 }, []string{"Options.Key 77", "slot.Key"}},
		{"uneven slots are fine", func(o *Options) { o.Slots = 1; o.Key = slot.KeyNamespace }, nil},
	}
	t.Setenv("POD_NAMESPACE", "")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := valid
			test.change(&o)
			_, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, o)
			require.ErrorSays(t, err, test.words...)
		})
	}
}

func TestIdentityFromEnvironment(t *testing.T) {
	t.Setenv("POD_NAME", "web-7d9f8b6c5d-x7k2p")
	t.Setenv("POD_UID", "1b4e28ba-2fa1-11d2-883f-0016d3cca427")
	t.Setenv("CONTAINER_NAME", "operator")
	i := Identity{}.withDefaults()
	want := Identity{Pod: "web-7d9f8b6c5d-x7k2p", PodUID: "1b4e28ba-2fa1-11d2-883f-0016d3cca427", Container: "operator",
		Build: "7d9f8b6c5d", Workload: "web"}
	if i != want {
		t.Errorf("identity %+v, want %+v", i, want)
	}
	if i := (Identity{Pod: "web-0", Build: "v2"}).withDefaults(); i.Build != "v2" || i.Pod != "web-0" {
		t.Errorf("identity %+v: what is given must stay", i)
	}
	a, b := newID("web-0"), newID("web-0")
	if a == b || !strings.HasPrefix(a, "web-0-") {
		t.Errorf("IDs %s and %s: must differ and begin with the pod's name", a, b)
	}
}

func TestWorkloadFromThePodsName(t *testing.T) {
	t.Setenv("POD_NAME", "")
	for pod, want := range map[string]string{
		"web-operator-7d9f8b6c5d-x7k2p": "web-operator", "web-7d9f8b6c5-x7k2p": "web", "web-0": "web", "web-12": "web",
		"web-012": "", "web-operator": "", "web": "", "web-7d9f8b6c5d-x7a2p": "", "": "",
	} {
		if got := (Identity{Pod: pod}).withDefaults().Workload; got != want {
			t.Errorf("workload of %q: %q, want %q", pod, got, want)
		}
	}
	if got := (Identity{Pod: "web-canary-0", Workload: "web"}).withDefaults().Workload; got != "web" {
		t.Errorf("workload %q, want what it was given", got)
	}
}

// outOfOrder are feature gates of client-go whose informers may hand on events in another order.
type outOfOrder struct{ features.Gates }

func (g outOfOrder) Enabled(f features.Feature) bool {
	return f != "InOrderInformers" && g.Gates.Enabled(f)
}

func TestInformersWithoutOrderAreRefused(t *testing.T) {
	opts := Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}}
	gates := features.FeatureGates()
	defer features.ReplaceFeatureGates(gates)
	features.ReplaceFeatureGates(outOfOrder{gates})
	_, err := New(&rest.Config{}, opts)
	require.ErrorSays(t, err, "rota website", "InOrderInformers")
	features.ReplaceFeatureGates(gates)
	_, err = New(&rest.Config{}, opts)
	require.NoError(t, err)
}

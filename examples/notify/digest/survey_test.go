package digest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/examples/notify/notice"
)

var morning = time.Date(2026, 1, 2, 7, 0, 0, 0, time.UTC)

func failure(namespace, name, reason string, hours int) notice.Failure {
	return notice.Failure{
		Object: notice.Object{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name}, Reason: reason,
		Since: morning.Add(-time.Duration(hours) * time.Hour),
	}
}

func TestSummary(t *testing.T) {
	s := &survey{}
	s.add(failure("shop", "b", notice.CrashLoopBackOff, 1))
	s.add(failure("shop", "c", notice.ImagePullBackOff, 9))
	s.add(failure("pay", "a", notice.CrashLoopBackOff, 3))
	s.add(failure("shop", "a", notice.CrashLoopBackOff, 1))
	want := notice.Summary{
		Failing: 4,
		Namespaces: []notice.Count{
			{Namespace: "shop", Failing: 3, Reasons: map[string]int{notice.CrashLoopBackOff: 2, notice.ImagePullBackOff: 1}},
			{Namespace: "pay", Failing: 1, Reasons: map[string]int{notice.CrashLoopBackOff: 1}},
		},
		Objects: []notice.Failure{
			failure("shop", "c", notice.ImagePullBackOff, 9), failure("pay", "a", notice.CrashLoopBackOff, 3),
			failure("shop", "a", notice.CrashLoopBackOff, 1), failure("shop", "b", notice.CrashLoopBackOff, 1),
		},
	}
	if diff := cmp.Diff(want, s.summary()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBounds: whatever fails, a digest is small, and says how much it leaves out.
func TestBounds(t *testing.T) {
	const namespaces, each = 300, 40
	long := func(kind string, i int) string { return fmt.Sprintf("%s-%s-%05d", kind, strings.Repeat("x", 50), i) }
	s := &survey{}
	for _, i := range rand.Perm(namespaces * each) {
		s.add(failure(long("namespace", i%namespaces), strings.Repeat("y", 180)+long("pod", i), notice.ImagePullBackOff, i))
	}
	if len(s.oldest) != mostObjects {
		t.Errorf("%d objects are in memory, want %d", len(s.oldest), mostObjects)
	}
	d := notice.Digest{ID: "id", Time: morning, Summary: s.summary()}
	d.Day, d.Timezone = "2026-01-02", "UTC"
	if d.Failing != namespaces*each || len(d.Objects)+d.MoreObjects != d.Failing || len(d.Namespaces)+d.MoreNamespaces != namespaces ||
		len(d.Objects) != mostObjects || len(d.Namespaces) != mostNamespaces {
		t.Errorf("%d failing, %d and %d objects, %d and %d namespaces", d.Failing, len(d.Objects), d.MoreObjects,
			len(d.Namespaces), d.MoreNamespaces)
	}
	for i, f := range d.Objects {
		if want := morning.Add(-time.Duration(namespaces*each-1-i) * time.Hour); !f.Since.Equal(want) {
			t.Errorf("object %d fails since %s, want %s", i, f.Since, want)
		}
	}
	slack, err := d.Slack("//eu-1")
	if err != nil {
		t.Fatal(err)
	}
	event, err := d.CloudEvent("//eu-1")
	if err != nil {
		t.Fatal(err)
	}
	state, err := json.Marshal(state{Day: d.Day, Digest: &d, To: []string{"audit", "ops"}})
	if err != nil {
		t.Fatal(err)
	}
	// Slack cuts messages after 40,000 characters.
	if len(slack) > 20_000 || len(event) > 20_000 || len(state) > 20_000 {
		t.Errorf("%d bytes for Slack, %d as event, %d remembered", len(slack), len(event), len(state))
	}
	for _, want := range []string{"12000 failing objects in 300 namespaces", "and 280 more", "and 11980 more"} {
		if !strings.Contains(string(slack), want) {
			t.Errorf("no %q in %s", want, slack)
		}
	}
}

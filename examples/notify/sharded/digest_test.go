package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/examples/notify/controller"
	"github.com/rota-dev/rota/examples/notify/notice"
	"github.com/rota-dev/rota/test/controlplane"
)

// ahead is a file that says by how much the clock of replicas is ahead of the machine's.
type ahead string

// set makes it show a time.
func (a ahead) set(t *testing.T, text string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	next := string(a) + ".next"
	if err := os.WriteFile(next, []byte(time.Until(at).String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, string(a)); err != nil {
		t.Fatal(err)
	}
}

func (a ahead) now() time.Time {
	text, err := os.ReadFile(string(a))
	if err != nil {
		panic(err)
	}
	by, err := time.ParseDuration(string(text))
	if err != nil {
		panic(err)
	}
	return time.Now().Add(by)
}

// fail makes n Pods that crash again and again.
func (w *world) fail(namespace string, n int) {
	w.t.Helper()
	api := w.client.CoreV1().Pods(namespace)
	for i := range n {
		pod, err := api.Create(w.t.Context(), &corev1.Pod{ObjectMeta: w.meta(fmt.Sprintf("crash-%d", i)), Spec: template},
			metav1.CreateOptions{})
		w.must(err)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: notice.CrashLoopBackOff},
		}}}
		_, err = api.UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{})
		w.must(err)
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); w.pause(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("after a minute: not %s", what)
		}
	}
}

// digestState is what replicas remember of digests.
func (w *world) digestState() (day string, to []string) {
	w.t.Helper()
	list, err := w.client.CoreV1().ConfigMaps(w.home).List(w.t.Context(),
		metav1.ListOptions{LabelSelector: controller.RecordsLabel + "=notify"})
	w.must(err)
	for _, cm := range list.Items {
		if cm.Name == "notify-digest" {
			var s struct {
				Day string
				To  []string
			}
			w.must(json.Unmarshal([]byte(cm.Data["record"]), &s))
			day, to = s.Day, s.To
		}
	}
	return day, to
}

var begins = regexp.MustCompile(`(?m)^I(\d{4} [\d:.]+) .*"Digests are told from here"`)

// digester returns the replica that was the last to get the duty.
func digester(fleet []*replica) (last *replica) {
	since := ""
	for _, p := range fleet {
		for _, m := range begins.FindAllStringSubmatch(p.log.String(), -1) {
			if m[1] > since {
				since, last = m[1], p
			}
		}
	}
	return last
}

// digests describes the digests that came, without doubles.
func (r *receiver) digests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, id := range r.got {
		if what := r.what[id]; what.event == string(notice.DigestType) {
			out = append(out, what.destination+" "+what.object+": "+what.reason)
		}
	}
	slices.Sort(out)
	return out
}

// TestDigest has the duty move from a replica that leaves while the receiver is away, from one that is killed after the
// receiver took the digest, and over a time in which nobody runs. Each day's digest comes once, and has all objects.
func TestDigest(t *testing.T) {
	plane := controlplane.For(t)
	home, away, other := controlplane.Namespace(t), controlplane.Namespace(t), controlplane.Namespace(t)
	w := &world{t: t, client: kubernetes.NewForConfigOrDie(plane.Config()), home: home, namespace: away, want: map[told]bool{}}
	w.fail(away, 30)
	w.fail(other, 5)
	w.liveJob("fails")
	r := newReceiver(t)
	clock := ahead(filepath.Join(t.TempDir(), "clock"))
	clock.set(t, "2026-03-27T06:30:00Z")
	file, secretFile := filepath.Join(t.TempDir(), "notify.yaml"), filepath.Join(t.TempDir(), "secret")
	w.must(os.WriteFile(secretFile, []byte(secret), 0o600))
	w.must(os.WriteFile(file, fmt.Appendf(nil, `
source: //clusters.example.com/test
kinds:
- {apiVersion: v1, kind: Pod, namespaces: [%[1]s, %[2]s], events: [failing]}
- {apiVersion: batch/v1, kind: Job, namespaces: [%[1]s], events: [failing]}
destinations:
- {name: audit, webhook: {url: "%[3]s/webhook", secretFile: %[4]s}, events: [deleted], backoff: {min: 100ms, max: 500ms}}
- {name: ops, slack: {url: "%[3]s/slack"}, events: [deleted], backoff: {min: 100ms, max: 500ms}}
digest: {at: "08:00", timezone: Europe/Berlin}
`, away, other, r.url, secretFile), 0o600))
	var all []*replica
	start := func() {
		all = append(all, startReplica(t, file, home, fmt.Sprintf("notify-%d", len(all)), clockFile+"="+string(clock)))
	}
	var want []string
	arrives := func(slack, webhook string) {
		t.Helper()
		want = append(want, "audit "+webhook+": 36", "ops "+slack+": 36")
		slices.Sort(want)
		w.eventually(fmt.Sprintf("all of %q came", want), func() bool { return len(r.digests()) >= len(want) })
		if diff := cmp.Diff(want, r.digests()); diff != "" {
			t.Fatalf("digests (-want +got):\n%s", diff)
		}
		w.eventually("all destinations crossed out", func() bool { _, to := w.digestState(); return len(to) == 0 })
		t.Logf("%s: %s", webhook, time.Since(w.began).Round(100*time.Millisecond))
	}
	w.began = time.Now()
	start()
	start()
	w.eventually("the day before the first digest is remembered", func() bool {
		day, _ := w.digestState()
		return day == "2026-03-26"
	})
	clock.set(t, "2026-03-27T07:00:01Z")
	arrives("Friday 27 March 2026", "2026-03-27")

	// The owner leaves while the receiver is away.
	r.refuse("1")
	clock.set(t, "2026-03-28T07:00:01Z")
	before := r.requests()
	w.eventually("both destinations refused", func() bool {
		_, to := w.digestState()
		return len(to) == 2 && r.requests() >= before+2
	})
	start()
	former := digester(all)
	former.leave(t)
	w.eventually("another replica has the duty", func() bool { return digester(all) != former })
	r.accept()
	arrives("Saturday 28 March 2026", "2026-03-28")
	if doubles := r.doubles(); len(doubles) > 0 {
		t.Errorf("without a crash these came twice: %q", doubles)
	}

	// The owner dies after the receiver took the digest. That night clocks were set forward.
	r.slow(2 * time.Second)
	clock.set(t, "2026-03-29T06:00:01Z")
	w.eventually("the receiver took it", func() bool { return len(r.digests()) > len(want) })
	former = digester(all)
	former.kill()
	r.slow(0)
	arrives("Sunday 29 March 2026", "2026-03-29")
	if digester(all) == former {
		t.Error("no other replica got the duty")
	}
	if doubles := r.doubles(); len(doubles) != 1 || !strings.HasSuffix(doubles[0], "-digest-2026-03-29") {
		t.Errorf("a kill -9 after the answer repeated %q, want the digest of that day with its ID", doubles)
	}

	// Nobody runs for two days.
	for _, p := range all {
		if p.cmd.ProcessState == nil {
			p.leave(t)
		}
	}
	clock.set(t, "2026-03-31T09:00:00Z")
	start()
	arrives("Tuesday 31 March 2026", "2026-03-31")
	if log := all[len(all)-1].log.String(); !strings.Contains(log, "Digests were missed") {
		t.Error("the log does not say that a digest was missed")
	}
	all[len(all)-1].leave(t)
}

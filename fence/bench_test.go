package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
)

// report adds percentiles of the durations to a benchmark's result, in milliseconds.
func report(b *testing.B, name string, all []time.Duration) {
	slices.Sort(all)
	at := func(q float64) float64 {
		return float64(all[min(len(all)-1, int(q*float64(len(all))))].Microseconds()) / 1000
	}
	b.ReportMetric(at(0.5), name+"-p50-ms")
	b.ReportMetric(at(0.99), name+"-p99-ms")
	b.ReportMetric(at(1), name+"-max-ms")
}

// BenchmarkLag measures how long after the answer to a change of the table an API server still admits writes of a member
// that was expelled by it, and how long it refuses those of one that joined by it: when the last such write was begun,
// 0 where there was none. With two API servers, the change goes through one and the writes through the other.
//
//	go test -run '^$' -bench Lag -benchtime 200x ./fence
func BenchmarkLag(b *testing.B) {
	for servers := 1; servers <= 2; servers++ {
		b.Run(fmt.Sprintf("servers=%d", servers), func(b *testing.B) {
			plane := controlplane.New(b, controlplane.Options{APIServers: servers})
			s := newSite(b, plane)
			first, other := s.pod("web-0"), s.pod("web-1")
			s.members(first, other)
			s.install()
			maps := kubernetes.NewForConfigOrDie(s.on(s.as(other), servers-1)).CoreV1().ConfigMaps(s.namespace)
			// last returns when the last write was begun, after the swap, that was judged by the table before.
			last := func(swapped time.Time, admitted bool) (late time.Duration) {
				for {
					begun := time.Now()
					_, err := maps.Create(b.Context(), configMap("probe"), dryRun)
					switch {
					case err != nil && !refused(err):
						b.Fatal(err)
					case (err == nil) != admitted:
						return late
					}
					late = max(begun.Sub(swapped), 1) // it may have been begun in the same instant
				}
			}
			var expelled, joined []time.Duration
			for b.Loop() {
				expelled = append(expelled, last(s.members(first), true))
				joined = append(joined, last(s.members(first, other), false))
			}
			report(b, "admitted", expelled)
			report(b, "refused", joined)
		})
	}
}

// BenchmarkWrite measures a write without and with a fence, in turns of 200, and one of another user with it.
//
//	go test -run '^$' -bench Write -benchtime 2000x ./fence
func BenchmarkWrite(b *testing.B) {
	for _, members := range []int{3, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			s := newSite(b, controlplane.For(b))
			pod := s.pod("web-0")
			s.write(append(crowd(members-1), table.Member{ID: "web-0-a", Pod: "web-0", PodUID: string(pod.UID), Weight: 1, MinFormat: 1, MaxFormat: 1}))
			s.install()
			mine, others := kubernetes.NewForConfigOrDie(s.as(pod)), kubernetes.NewForConfigOrDie(s.plane.Config())
			obj, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(b.Context(), configMap("object"), metav1.CreateOptions{})
			noError(b, err)
			n := 0
			write := func(client kubernetes.Interface) time.Duration {
				n++
				obj.Data = map[string]string{"n": fmt.Sprint(n)}
				begun := time.Now()
				obj, err = client.CoreV1().ConfigMaps(s.namespace).Update(b.Context(), obj, metav1.UpdateOptions{})
				noError(b, err)
				return time.Since(begun)
			}
			var with, without, other []time.Duration
			for i := 0; b.Loop(); i++ {
				if i%200 == 0 {
					s.remove()
					for range 200 {
						without = append(without, write(mine))
					}
					s.install()
				}
				with = append(with, write(mine))
				other = append(other, write(others))
			}
			report(b, "without", without)
			report(b, "fenced", with)
			report(b, "other-user", other)
		})
	}
}

// remove deletes the binding and waits until that is known.
func (s *site) remove() {
	s.Helper()
	err := s.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(s.Context(), s.options.ObjectName(), metav1.DeleteOptions{})
	noError(s, err)
	nobody := kubernetes.NewForConfigOrDie(s.as(nil))
	eventually(s, func() error {
		_, err := nobody.CoreV1().ConfigMaps(s.namespace).Create(s.Context(), configMap("probe"), dryRun)
		return err
	})
}

// crowd is n members without processes.
func crowd(n int) []table.Member {
	members := make([]table.Member, n)
	for i := range members {
		id := fmt.Sprintf("web-7d9f8b6c5d-%05d-k3j9x", i)
		members[i] = table.Member{
			ID: id, Pod: id[:len(id)-6], PodUID: fmt.Sprintf("0c2f91ab-7a4e-4b53-9d0c-%012d", i), Build: "v7",
			Weight: 1, MinFormat: 1, MaxFormat: 1, Joined: 1763712000,
		}
	}
	return members
}

// BenchmarkMemory measures what the fence costs an API server where there are 20,000 ConfigMaps of 4 KB, since it follows
// all of them; beside it a policy whose param is a ServiceAccount. Then the API server restarts, and it is counted how many
// writes it judges wrongly, in either way, after it has said that it is ready.
//
//	go test -run '^$' -bench Memory -benchtime 1x ./fence
func BenchmarkMemory(b *testing.B) {
	plane := controlplane.New(b, controlplane.Options{})
	s := newSite(b, plane)
	fill(b, s)
	for b.Loop() {
		before := heap(b, s.admin)
		s.otherParam()
		account := heap(b, s.admin)
		s.members(s.pod("web-0"))
		s.install()
		fenced := heap(b, s.admin)
		b.ReportMetric(before, "MB-before")
		b.ReportMetric(account-before, "MB-by-serviceaccount")
		b.ReportMetric(fenced-account, "MB-by-configmap")
		nobody := kubernetes.NewForConfigOrDie(s.as(nil))
		noError(b, plane.StopServer("apiserver-0"))
		noError(b, plane.StartServer("apiserver-0"))
		ready, tries, late := time.Now(), 0, 0
		eventually(s, func() error {
			_, err := nobody.CoreV1().ConfigMaps(s.namespace).Create(b.Context(), configMap("probe"), dryRun)
			if !refused(err) {
				late++
				return errors.Join(errors.New("not refused"), err)
			}
			return nil
		})
		eventually(s, func() error {
			_, err := s.admin.CoreV1().ConfigMaps(s.namespace).Create(b.Context(), configMap("probe"), dryRun)
			if err != nil {
				tries++
			}
			return err
		})
		b.ReportMetric(float64(time.Since(ready).Milliseconds()), "ms-until-both")
		b.ReportMetric(float64(tries), "refused-writes-of-others")
		b.ReportMetric(float64(late), "late-writes-not-refused")
	}
}

// fill makes 20,000 ConfigMaps of 4 KB.
func fill(b *testing.B, s *site) {
	numbers := make(chan int)
	failed := make(chan error, 16)
	text := make([]byte, 4<<10)
	for i := range text {
		text[i] = 'a' + byte(i%26)
	}
	for range cap(failed) {
		go func() {
			var err error
			for i := range numbers {
				cm := configMap(fmt.Sprintf("bulk-%05d", i))
				cm.Data = map[string]string{"text": string(text)}
				if _, e := s.admin.CoreV1().ConfigMaps(s.namespace).Create(b.Context(), cm, metav1.CreateOptions{}); e != nil {
					err = e
				}
			}
			failed <- err
		}()
	}
	for i := range 20_000 {
		numbers <- i
	}
	close(numbers)
	for range cap(failed) {
		noError(b, <-failed)
	}
}

// otherParam applies a policy for another kind with a ServiceAccount as its param.
func (s *site) otherParam() {
	s.Helper()
	policy, binding, err := fence.Policy(s.options)
	noError(s, err)
	policy.Name, binding.Name, binding.Spec.PolicyName = "by-account", "by-account", "by-account"
	policy.Spec.ParamKind.Kind = "ServiceAccount"
	policy.Spec.MatchConstraints.ResourceRules = policy.Spec.MatchConstraints.ResourceRules[:1]
	binding.Spec.ParamRef.Name = account
	vap := s.admin.AdmissionregistrationV1()
	if _, err := vap.ValidatingAdmissionPolicies().Create(s.Context(), policy, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if _, err := vap.ValidatingAdmissionPolicyBindings().Create(s.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	nobody := s.websites(s.as(nil))
	eventually(s, func() error {
		_, err := nobody.Create(s.Context(), website("probe"), dryRun)
		if !refused(err) {
			return errors.Join(errors.New("not enforced"), err)
		}
		return nil
	})
}

func heap(b *testing.B, admin kubernetes.Interface) float64 {
	get := func(path string, param ...string) []byte {
		req := admin.CoreV1().RESTClient().Get().AbsPath(path)
		if len(param) > 0 {
			req = req.Param(param[0], param[1])
		}
		text, err := req.DoRaw(context.Background())
		noError(b, err)
		return text
	}
	for range 2 { // finalizers keep something for a second round
		get("/debug/pprof/heap", "gc", "1")
	}
	var bytes float64
	for line := range strings.Lines(string(get("/metrics"))) {
		if _, err := fmt.Sscanf(line, "go_memstats_heap_alloc_bytes %g", &bytes); err == nil {
			return bytes / (1 << 20)
		}
	}
	b.Fatal("no go_memstats_heap_alloc_bytes")
	return 0
}

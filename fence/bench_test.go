package fence_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
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
			require.NoError(b, err)
			n := 0
			write := func(client kubernetes.Interface) time.Duration {
				n++
				obj.Data = map[string]string{"n": fmt.Sprint(n)}
				begun := time.Now()
				obj, err = client.CoreV1().ConfigMaps(s.namespace).Update(b.Context(), obj, metav1.UpdateOptions{})
				require.NoError(b, err)
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
	require.NoError(s, err)
	nobody := kubernetes.NewForConfigOrDie(s.as(nil))
	require.Eventually(s, 30*time.Second, func() error {
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

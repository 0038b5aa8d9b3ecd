package ctrlrt

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/internal/turns"
	"github.com/rota-dev/rota/test/queuetest"
	"github.com/rota-dev/rota/test/require"
)

// A fair queue whose items are of one tenant does what controller-runtime's priority queue does, but for turns of lower
// priorities.
func TestAFairQueueIsAPriorityQueue(t *testing.T) {
	skipOldStockQueue(t)
	queuetest.Compare(t, func(*testing.T) *queuetest.Player[request] {
		return &queuetest.Player[request]{Queue: innerQueue(controller.Options{})("", queueLimiter()), Item: requestOf}
	}, func(*testing.T) *queuetest.Player[request] {
		return &queuetest.Player[request]{
			Queue: newFairQueue("", queueLimiter(), fair.Options[request]{}, 0), Item: requestOf,
		}
	})
}

// skipOldStockQueue skips comparisons of fair queues with the stock queue of a version that differs.
func skipOldStockQueue(t *testing.T) {
	t.Helper()
	if !stockQueueParts() {
		t.Skip("the priority queue of controller-runtime 0.22 orders, and counts after its end, in another way: a " +
			"fair queue does as that of 0.23 and newer")
	}
}

// stockQueueParts reports whether controller-runtime's priority queue keeps what waits apart from what is ready.
func stockQueueParts() bool {
	q := priorityqueue.New[request]("")
	defer q.ShutDown()
	return reflect.ValueOf(q).Elem().FieldByName("waiting").IsValid()
}

// Both tell the same in metrics.
func TestAFairQueuesMetrics(t *testing.T) {
	told := func(name string, q prioritized) map[string]string {
		low := -100
		for n := range 5 {
			q.Add(requestOf(n))
		}
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, requestOf(7), requestOf(8))
		q.AddRateLimited(requestOf(9))
		high := 3
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &high}, requestOf(8))
		for range 3 {
			if _, shutdown := q.Get(); shutdown {
				t.Fatal("it has shut down")
			}
		}
		q.Done(requestOf(0))
		time.Sleep(2 * unfinishedPeriod)
		defer q.ShutDown()
		out := map[string]string{}
		families, err := metrics.Registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if labels["name"] != name {
					continue
				}
				is := "some"
				switch {
				case m.GetHistogram() != nil:
					is = fmt.Sprint(m.GetHistogram().GetSampleCount(), len(m.GetHistogram().GetBucket()))
				case m.GetCounter() != nil:
					is = fmt.Sprint(m.GetCounter().GetValue())
				case strings.HasSuffix(f.GetName(), "_depth"):
					is = fmt.Sprint(m.GetGauge().GetValue())
				case m.GetGauge().GetValue() == 0:
					is = "none"
				}
				out[f.GetName()+labels["priority"]] = is
			}
		}
		return out
	}
	stock := told("stock-queue", priorityqueue.New[request]("stock-queue"))
	mine := told("fair-queue", newFairQueue("fair-queue", nil, fair.Options[request]{}, 0))
	if diff := cmp.Diff(stock, mine); diff != "" || len(stock) < 8 {
		t.Errorf("metrics of %d families differ (-stock +fair):\n%s", len(stock), diff)
	}
}

// Of 25 tenants the ten with most items are told by name, whatever the others are called.
func TestTenantsInMetrics(t *testing.T) {
	q := newFairQueue("tenants", nil, fair.Options[request]{}, lowTurn)
	told := func() (out []string) {
		families, err := metrics.Registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if strings.HasPrefix(f.GetName(), "fair_queue_w") && m.GetLabel()[0].GetValue() == "tenants" {
					out = append(out, fmt.Sprintf("%s %s %v", f.GetName()[len("fair_queue_"):], m.GetLabel()[1].GetValue(),
						m.GetGauge().GetValue()))
				}
			}
		}
		return out
	}
	for n := range 25 {
		for i := range n + 1 {
			q.Add(request{NamespacedName: types.NamespacedName{Namespace: fmt.Sprintf("t%02d", n), Name: fmt.Sprint(i)}})
		}
	}
	if r, _ := q.Get(); r.Namespace != "t00" {
		t.Errorf("%v is first", r)
	}
	got := told()
	if len(got) != 22 || got[0] != "waiting_items (others) 119" || got[1] != "waiting_items t15 16" ||
		got[10] != "waiting_items t24 25" || got[11] != "working_items (others) 1" || got[12] != "working_items t15 0" {
		t.Errorf("%d series: %q", len(got), got)
	}
	q.ShutDown()
	if got := told(); len(got) > 0 {
		t.Errorf("a queue that has shut down is told of: %q", got)
	}
}

// Metrics are asked for while queues come and go.
func TestTenantsWhileQueuesEnd(t *testing.T) {
	end := make(chan struct{})
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				if _, err := metrics.Registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 200 {
		q := newFairQueue(fmt.Sprint("ends-", n%3), nil, fair.Options[request]{}, lowTurn)
		for i := range 20 {
			q.Add(requestOf(i))
		}
		q.ShutDown()
	}
	close(end)
	asking.Wait()
}

// The oldest item of a tenant is the one that became ready first and that no worker has, whatever is taken and raised.
func TestOldestOfATenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFairQueue("", queueLimiter(), fair.Options[request]{}, 0)
		defer q.ShutDown()
		want := func(when string, seconds int) {
			t.Helper()
			got := q.tenants(time.Now())
			if len(got) != 1 || got[0].oldest != time.Duration(seconds)*time.Second {
				t.Errorf("%s: %+v, want %d s", when, got, seconds)
			}
		}
		for n := range 3 {
			q.Add(requestOf(n))
			time.Sleep(time.Second)
		}
		want("three", 3)
		first, _ := q.Get()
		want("two", 2)
		q.Add(first)
		high := 5
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &high}, requestOf(1))
		time.Sleep(time.Second)
		want("the second is raised, the first waits for itself", 3)
		q.Get()
		q.Get()
		want("only the first, which a worker has", 0)
		q.Done(first)
		want("it is done", 1)
	})
}

// Tenants are any text, and a scrape does not look at every item.
func TestTenantsOfAnyName(t *testing.T) {
	var all []tenantItems
	for n := range 2 * mostTenants {
		all = append(all, tenantItems{Tenant: turns.Tenant{Name: fmt.Sprintf("team-%02d", n), Waiting: 1}})
	}
	for _, name := range []string{otherTenants, "caf\xc3", "caf\xc4"} {
		all = append(all, tenantItems{Tenant: turns.Tenant{Name: name, Waiting: 2}})
	}
	got := map[string]int{}
	for _, is := range most(all) {
		if _, twice := got[is.Name]; twice || !utf8.ValidString(is.Name) {
			t.Errorf("tenant %q", is.Name)
		}
		got[is.Name] = is.Waiting
	}
	if got["caf\uFFFD"] != 4 || got[otherTenants] != 2+mostTenants+1 || len(got) != mostTenants+1 {
		t.Errorf("tenants %v", got)
	}
	q := newFairQueue("", queueLimiter(), fair.Options[request]{}, 0)
	defer q.ShutDown()
	for n := range 100_000 {
		q.Add(request{NamespacedName: types.NamespacedName{Namespace: strconv.Itoa(n % 100), Name: strconv.Itoa(n)}})
	}
	least := time.Hour
	for range 10 {
		begun := time.Now()
		q.tenants(begun)
		least = min(least, time.Since(begun))
	}
	if least > 20*time.Millisecond {
		t.Errorf("the queue is locked for %v", least)
	}
}

// What triggers itself does not keep what has a low priority waiting without end, as it does in a stock queue.
func TestLowPriorityGetsTurns(t *testing.T) {
	for name, of := range map[string]newQueue{"fair": FairQueue(fair.Options[request]{}), "stock": innerQueue(controller.Options{})} {
		synctest.Test(t, func(t *testing.T) {
			q := of("", queueLimiter()).(prioritized)
			low := -100
			for n := range 30 {
				q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, requestOf(n))
			}
			for n := range 5 {
				q.Add(requestOf(100 + n))
			}
			first := map[request]bool{}
			for range 1000 {
				r, priority, _ := q.GetWithPriority()
				first[r] = true
				if priority == 0 {
					q.Add(r) // as its own write does
				}
				q.Done(r)
				synctest.Wait()
			}
			q.ShutDown()
			if n := len(first); (n == 35) != (name == "fair") {
				t.Errorf("%s: %d of 35 items had a turn", name, n)
			}
		})
	}
}

// flooded has ten workers reconcile, each for 100 ms, what 51 tenants add to a queue: 5,100 objects, of which each of 50
// tenants' changes now and then, and those of one again and again if it floods. It returns
// how long the others' took until they were reconciled.
func flooded(t *testing.T, of newQueue, flood bool) []time.Duration {
	const workers, takes = 10, 100 * time.Millisecond
	var waits []time.Duration
	synctest.Test(t, func(*testing.T) {
		q := of("", queueLimiter())
		rng := rand.New(rand.NewPCG(1, 2))
		added := map[request]time.Time{}
		lock := make(chan struct{}, 1)
		add := func(r request) {
			lock <- struct{}{}
			if _, waits := added[r]; !waits {
				added[r] = time.Now()
			}
			<-lock
			q.Add(r)
		}
		for range workers {
			go func() {
				for {
					r, shutdown := q.Get()
					if shutdown {
						return
					}
					lock <- struct{}{}
					at := added[r]
					delete(added, r)
					<-lock
					time.Sleep(takes)
					q.Done(r)
					if r.Namespace != "flood" {
						lock <- struct{}{}
						waits = append(waits, time.Since(at))
						<-lock
					}
				}
			}()
		}
		object := func(namespace string) request {
			return request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(rng.IntN(100))}}
		}
		for range 60 * 20 { // a minute: 20 changes a second of the others, 400 of the flood
			add(object(fmt.Sprint("tenant-", rng.IntN(50))))
			for range 20 {
				if flood {
					add(object("flood"))
				}
			}
			time.Sleep(50*time.Millisecond + time.Duration(rng.IntN(1000))*time.Nanosecond)
		}
		q.ShutDown()
		time.Sleep(time.Minute)
	})
	slices.Sort(waits)
	return waits
}

// One of 51 namespaces floods the queue: the others' objects wait about as long as without it, and with a stock queue
// they wait behind all of it.
func TestAFloodOfOneTenant(t *testing.T) {
	p99 := func(fairly, flood bool) time.Duration {
		of := innerQueue(controller.Options{})
		if fairly {
			of = FairQueue(fair.Options[request]{})
		}
		waits := flooded(t, of, flood)
		if len(waits) < 1000 {
			t.Fatalf("%d of the others' objects were reconciled, want 1,000 and more", len(waits))
		}
		return waits[len(waits)*99/100]
	}
	alone, fairly, stock := p99(true, false), p99(true, true), p99(false, true)
	t.Logf("p99 of the others' changes until they are reconciled: alone %v, beside a flood %v, with a stock queue %v",
		alone, fairly, stock)
	if fairly > 2*alone {
		t.Errorf("beside a flood it takes %v, want at most twice as long as alone, %v", fairly, alone)
	}
	if stock < 2*fairly {
		t.Errorf("with a stock queue it takes %v: the flood is none", stock)
	}
}

package queue_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
)

// filled is a queue with many keys of 100 namespaces ready.
func filled(b *testing.B, keys int) *queue.Queue {
	b.Helper()
	q, err := queue.New(queue.Config{Slots: 256, Kinds: []string{"Pod"}})
	if err != nil {
		b.Fatal(err)
	}
	q.SetDeadline(0, time.Hour)
	q.Open(0, slot.Count(256).All(), 1)
	for i := range keys {
		tell(b, q, i)
	}
	return q
}

func tell(b *testing.B, q *queue.Queue, i int) {
	name, namespace := "object-with-a-name-"+strconv.Itoa(i), "namespace-"+strconv.Itoa(i%100)
	err := q.Change(0, queue.Change{
		Key: queue.Key{Kind: "Pod", Namespace: namespace, Name: name}, Slot: slot.Count(256).Of(slot.HashName(namespace, name)),
		UID: "6f8a3f0c-1b9e-4a57-9f0d-" + strconv.Itoa(100_000_000_000+i), Version: strconv.Itoa(i),
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkKey has a key go through the queue: a change, a take, and its end.
func BenchmarkKey(b *testing.B) {
	for _, waiting := range []int{0, 100_000} {
		b.Run(strconv.Itoa(waiting)+"-ready", func(b *testing.B) {
			q := filled(b, waiting)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				tell(b, q, waiting+i)
				if err := q.Ask(0, queue.Ask{ID: uint64(i), Worker: "w", Max: 1}); err != nil { // from 0
					b.Fatal(err)
				}
				for _, a := range q.Actions(0) {
					for _, take := range a.(queue.Given).Takes { // nothing drains
						if err := q.Done(0, take.ID, "w", queue.Result{}); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// BenchmarkPending reports how much memory keys take that are ready.
func BenchmarkPending(b *testing.B) {
	const keys = 100_000
	for range b.N {
		before := live()
		q := filled(b, keys)
		b.ReportMetric(float64(live()-before)/keys, "B/key")
		runtime.KeepAlive(q)
	}
}

func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) // bytes of this process
}

// BenchmarkAffine has a key change while many workers ask with Affine, and as many keep theirs without asking.
func BenchmarkAffine(b *testing.B) {
	for _, workers := range []int{100, 1000, 3000} {
		b.Run(strconv.Itoa(workers)+"-workers", func(b *testing.B) {
			q, err := queue.New(queue.Config{Slots: 256, Kinds: []string{"Pod"}, MaxAffine: workers})
			if err != nil {
				b.Fatal(err)
			}
			q.SetDeadline(0, time.Hour)
			q.Open(0, slot.Count(256).All(), 1)
			for i := range workers {
				id := uint64(i) + 1 // from 0
				err := q.Ask(0, queue.Ask{ID: id, Worker: "w" + strconv.Itoa(i), Affine: true, Stream: true})
				if err == nil && i%2 == 0 {
					err = q.More(0, id, 1<<40)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ResetTimer()
			for i := range b.N {
				tell(b, q, i)
				q.Actions(0)
				q.Wake()
			}
		})
	}
}

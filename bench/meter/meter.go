// Package meter measures a process from within: processor time, heap, and what it exchanges with an API server.
package meter

import (
	"context"
	"maps"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// SampleEvery is how often the heap is sampled. A shorter peak goes unnoticed.
const SampleEvery = 10 * time.Millisecond

// Meter measures its own process. Make one with New. Its methods may be called concurrently.
type Meter struct {
	wire wire
	peak atomic.Uint64 // of live objects and garbage, in bytes, since the last Reset
}

// New returns a meter. namespace is the one of the operator itself, whose ConfigMaps count as tables.
func New(namespace string) *Meter {
	return &Meter{wire: wire{namespace: namespace, requests: map[string]int{}, beside: map[string]int{}}}
}

// Watch makes all clients of cfg count their traffic.
func (m *Meter) Watch(cfg *rest.Config) { m.wire.watch(cfg) }

// Run samples the heap until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	tick := time.NewTicker(SampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.peak.Store(max(m.peak.Load(), heap())) // if a Reset comes between, this is its first sample
		}
	}
}

// Reset begins a new peak of the heap.
func (m *Meter) Reset() { m.peak.Store(heap()) }

// heap returns the bytes of live objects and of garbage that has not been collected. Unlike
// runtime.ReadMemStats it does not stop the process.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// Counts are what a process has done since it began. PeakHeap is since the last Reset.
type Counts struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	Bytes      int64   `json:"bytes"` // received from the API server
	Watches    int64   `json:"watches"`
	// Requests are by verb and resource, such as "list websites". Beside are those of them that were not sent by
	// reconciles (Reconcile).
	Requests map[string]int `json:"requests"`
	Beside   map[string]int `json:"beside,omitempty"`
	PeakHeap uint64         `json:"peak_heap"`
}

// NewCounts returns counts of nothing.
func NewCounts() Counts { return Counts{Requests: map[string]int{}, Beside: map[string]int{}} }

// Add adds what another process has done.
func (c *Counts) Add(other Counts) {
	c.CPUSeconds += other.CPUSeconds
	c.Bytes += other.Bytes
	c.Watches += other.Watches
	c.PeakHeap += other.PeakHeap
	for k, n := range other.Requests {
		c.Requests[k] += n
	}
	for k, n := range other.Beside {
		c.Beside[k] += n
	}
}

// Counts returns what the process has done.
func (m *Meter) Counts() Counts {
	c := Counts{
		CPUSeconds: cpu(), Bytes: m.wire.received.Load(), Watches: m.wire.watches.Load(), PeakHeap: m.peak.Load(),
	}
	m.wire.mu.Lock()
	defer m.wire.mu.Unlock()
	c.Requests, c.Beside = maps.Clone(m.wire.requests), maps.Clone(m.wire.beside)
	return c
}

// Since returns what was done between two Counts of a process. Watches and PeakHeap are the later ones.
func (c Counts) Since(then Counts) Counts {
	c.CPUSeconds -= then.CPUSeconds
	c.Bytes -= then.Bytes
	c.Requests, c.Beside = less(c.Requests, then.Requests), less(c.Beside, then.Beside)
	return c
}

func less(now, then map[string]int) map[string]int {
	out := map[string]int{}
	for k, n := range now {
		if n -= then[k]; n > 0 {
			out[k] = n
		}
	}
	return out
}

// LiveHeap collects garbage twice, since finalizers and pools release memory at the first time, and returns the bytes
// that remain.
func LiveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	return heap()
}

// cpu returns the processor time that this process has taken, in seconds.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only a bad argument can cause this
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}

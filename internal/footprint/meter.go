package footprint

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"time"
)

// sampleEvery is how often a replica looks at its heap. A peak that is shorter is not seen.
const sampleEvery = 10 * time.Millisecond

// meter knows what its process costs.
type meter struct {
	wire wire
	peak atomic.Uint64 // of live objects and garbage, in bytes, since the last reset
}

// run samples the heap until ctx ends.
func (m *meter) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.peak.Store(max(m.peak.Load(), heap())) // reset may come between: then this sample is its first
		}
	}
}

// heap returns the bytes of live objects and of garbage that has not been collected. Unlike
// runtime.ReadMemStats it does not stop the process.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func (m *meter) reset() { m.peak.Store(heap()) }

// collect returns the heap after garbage collections: two, since finalizers and pools let go at the first.
func collect() (s runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s
}

// cpu returns the processor time that this process has taken, in seconds.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no other reason than a bad argument
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}

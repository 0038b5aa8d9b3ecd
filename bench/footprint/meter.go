package footprint

import (
	"context"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"time"
)

// sampleEvery is how often a replica samples its heap. A shorter peak goes unnoticed.
const sampleEvery = 10 * time.Millisecond

// meter measures its own process.
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
			m.peak.Store(max(m.peak.Load(), heap())) // if a reset comes between, this is its first sample
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

// collect returns the heap after two garbage collections. Finalizers and pools release memory at the first one.
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
		panic(err) // only a bad argument can cause this
	}
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
}

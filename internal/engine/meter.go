package engine

import (
	"math"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/procfs"

	"github.com/rota-dev/rota/internal/protocol/planner"
)

// collectAfter is how long after a change of its slots a member runs the garbage collector, if memory use cannot be
// measured otherwise.
const collectAfter = 5 * time.Second

// meter measures the memory that this process uses (rule R23). It may be used concurrently.
type meter struct {
	mu    sync.Mutex
	limit int64 // 0 if unknown
	// soft is true if the limit is GOMEMLIMIT, so that garbage is collected before it is reached.
	soft bool
	base int64
	// slots is the member's number of slots at the last report, and changed is when that number last changed. collected is
	// true if there was a garbage collection since.
	slots     int
	changed   time.Time
	collected bool
	reported  planner.MemoryReport
}

func newMeter() *meter {
	m := &meter{}
	if limit, err := memlimit.FromCgroup(); err == nil && limit < math.MaxInt64 {
		m.limit = int64(limit)
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 && (m.limit == 0 || limit <= m.limit) {
		m.limit, m.soft = limit, true
	}
	return m
}

// report returns the memory in use while the member has the given number of slots.
func (m *meter) report(slots int) planner.MemoryReport {
	if m.limit == 0 {
		return planner.MemoryReport{}
	}
	process, err := procfs.Self()
	if err != nil {
		return planner.MemoryReport{}
	}
	stat, err := process.Stat()
	if err != nil {
		return planner.MemoryReport{}
	}
	used := int64(stat.ResidentMemory())
	m.mu.Lock()
	defer m.mu.Unlock()
	if slots != m.slots {
		m.slots, m.changed, m.collected = slots, time.Now(), false
	}
	if m.soft && !m.collected && used > m.limit/2 && time.Since(m.changed) > collectAfter {
		runtime.GC() // otherwise it may take minutes until the size of the live heap is known
		m.collected = true
	}
	if m.collected {
		used = max(used-garbage(), 0)
	}
	if slots == 0 || m.base == 0 {
		m.base = used
	}
	m.reported = planner.MemoryReport{Used: used, Limit: m.limit, Base: m.base}
	return m.reported
}

// last returns the last report.
func (m *meter) last() planner.MemoryReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reported
}

// memoryReport measures this process's memory for the planner.
func (r *Engine) memoryReport() planner.MemoryReport {
	held := r.hashes(r.share.Held())
	return r.meter.report(held.Len())
}

// garbage returns how many bytes of the heap were unused at the last garbage collection or are free.
func garbage() int64 {
	samples := []runtimemetrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	runtimemetrics.Read(samples)
	objects, free, live := samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()
	return int64(free + max(objects, live) - live)
}

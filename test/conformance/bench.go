package conformance

import (
	"fmt"
	"testing"
	"time"
)

// Bench measures how many keys a program works on that take no time, and how much of a CPU it needs for each.
func Bench(b *testing.B, p Program) {
	b.Helper()
	t := &trial{}
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
		if t.Failed() {
			b.Fatal(t.failures)
		}
	}()
	l := newLab(t, time.Minute)
	for i := range b.N {
		l.tier.Change(fmt.Sprintf("ok-%d", i), false)
	}
	b.ResetTimer()
	l.run(p)
	for done := 0; done < b.N; {
		_, counts := l.tier.Stats()
		done = int(counts.Done) // there are no more than b.N
		time.Sleep(5 * time.Millisecond)
	}
	b.StopTimer()
	l.stop(soon)
	used := l.cmd.ProcessState.UserTime() + l.cmd.ProcessState.SystemTime()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
	b.ReportMetric(used.Seconds()*1000/float64(b.N), "cpu-ms/key")
}

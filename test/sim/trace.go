package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// traceEvent is an event of a trace, as chrome://tracing and ui.perfetto.dev read it. Times are in microseconds.
type traceEvent struct {
	Name    string            `json:"name"`
	Phase   string            `json:"ph"`
	At      int64             `json:"ts"`
	Took    int64             `json:"dur,omitempty"`
	Process int               `json:"pid"`
	Thread  int               `json:"tid"`
	Scope   string            `json:"s,omitempty"`
	Args    map[string]string `json:"args,omitempty"`
}

// The processes of a trace that are none of the life's, which follow, and their first thread.
const (
	faultsProcess, ownersProcess, firstProcess = 1, 2, 3
	mainThread                                 = 1
)

// Threads of a process of the life. It has one for each slot from slotThreads on, and for each key from keyThreads on.
const (
	pausedThread, lapsedThread = 2, 3
	slotThreads, keyThreads    = 10, 10_000
)

// trace is one in the making.
type trace struct {
	end    time.Duration
	events []traceEvent
	named  map[[2]int]bool
}

// WriteTrace writes a trace to look at in ui.perfetto.dev: faults, owners by the table, and the processes with their
// gates, what was in flight in them, and their writes.
func (t *Timeline) WriteTrace(out io.Writer) error {
	tr := &trace{end: t.end, named: map[[2]int]bool{}}
	tr.name(faultsProcess, "faults, and what was violated")
	tr.faults(t.faults)
	for _, b := range t.broken {
		tr.mark(faultsProcess, mainThread, b.at, b.text)
		tr.events[len(tr.events)-1].Scope = "g" // a line through everything
	}
	tr.name(ownersProcess, "owners by the table")
	for _, m := range t.tables {
		tr.mark(ownersProcess, mainThread, m.at, m.text)
	}
	for s, owners := range t.owners {
		for _, o := range owners {
			tr.span(ownersProcess, slotThreads+s, fmt.Sprintf("slot %03d", s), o, o.who)
		}
	}
	for i, l := range t.lanes {
		tr.lane(firstProcess+i, l)
	}
	return json.NewEncoder(out).Encode(map[string]any{"traceEvents": tr.events})
}

// faults have as few threads as they fit in.
func (tr *trace) faults(all []FaultSpan) {
	var ends []time.Duration
	for _, f := range all {
		i := slices.IndexFunc(ends, func(end time.Duration) bool { return end <= f.From })
		if i < 0 {
			i = len(ends)
			ends = append(ends, 0)
		}
		ends[i] = max(f.Till, f.From+time.Millisecond)
		tr.span(faultsProcess, slotThreads+i, "faults", span{f.From, ends[i], ""}, f.Fault.String()+" "+f.Who)
	}
}

// lane adds a process of the life.
func (tr *trace) lane(process int, l *lane) {
	tr.name(process, l.id+", "+l.about)
	tr.span(process, mainThread, "process", l.life, l.id+" "+l.how)
	for _, p := range l.paused {
		tr.span(process, pausedThread, "paused", p, "paused")
	}
	for _, p := range l.lapsed {
		tr.span(process, lapsedThread, "deadline", p, "deadline passed")
	}
	for s, spans := range l.open {
		for _, o := range spans {
			tr.span(process, slotThreads+s, fmt.Sprintf("slot %03d", s), o, "gate open")
		}
	}
	for _, f := range l.inFlight {
		thread := keyThreads + int(f.slot)*keysPerSlot + f.n
		tr.span(process, thread, fmt.Sprintf("slot %03d, key %d", f.slot, f.n), f.span, "in flight")
	}
	for _, w := range l.writes {
		tr.mark(process, slotThreads+int(w.slot), w.from, "write commits")
	}
	for _, r := range l.renewals {
		tr.mark(process, mainThread, r.at, r.text)
	}
	if l.leaving >= 0 {
		tr.mark(process, mainThread, l.leaving, "SIGTERM")
	}
}

// name gives a process its name.
func (tr *trace) name(process int, name string) {
	tr.events = append(tr.events, traceEvent{
		Name: "process_name", Phase: "M", Process: process, Args: map[string]string{"name": name},
	})
}

// span adds what lasted for a time. thread is the thread's name.
func (tr *trace) span(process, id int, thread string, s span, name string) {
	if at := [2]int{process, id}; !tr.named[at] {
		tr.named[at] = true
		tr.events = append(tr.events, traceEvent{
			Name: "thread_name", Phase: "M", Process: process, Thread: id, Args: map[string]string{"name": thread},
		})
	}
	till := min(s.till, tr.end)
	tr.events = append(tr.events, traceEvent{
		Name: name, Phase: "X", At: s.from.Microseconds(), Took: (till - s.from).Microseconds(), Process: process, Thread: id,
	})
}

// mark adds what happened at a moment.
func (tr *trace) mark(process, id int, at time.Duration, text string) {
	tr.events = append(tr.events, traceEvent{
		Name: text, Phase: "i", At: at.Microseconds(), Process: process, Thread: id, Scope: "t",
	})
}

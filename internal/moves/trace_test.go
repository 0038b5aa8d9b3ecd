package moves

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// recorded is a span that a member sent.
type recorded struct {
	parent       trace.SpanContext
	begun, ended time.Time
	values       map[string]string
}

// recorder is a tracer that keeps spans by their names.
type recorder struct {
	noop.Tracer
	spans map[string]recorded
}

// span is a span that its recorder keeps when it ends.
type span struct {
	noop.Span
	recorder *recorder
	name     string
	recorded
}

func (r *recorder) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	c := trace.NewSpanStartConfig(o...)
	s := &span{recorder: r, name: name, recorded: recorded{
		parent: trace.SpanContextFromContext(ctx), begun: c.Timestamp(), values: map[string]string{},
	}}
	for _, a := range c.Attributes() {
		s.values[string(a.Key)] = a.Value.Emit()
	}
	id := trace.NewSpanContext(trace.SpanContextConfig{TraceID: s.parent.TraceID(), SpanID: trace.SpanID{1}})
	return trace.ContextWithSpanContext(ctx, id), s
}

func (s *span) End(o ...trace.SpanEndOption) {
	c := trace.NewSpanEndConfig(o...)
	s.ended = c.Timestamp()
	s.recorder.spans[s.name] = s.recorded
}

// TestHandoversAreTraced: the spans of both members are in one trace, in the order of the phases, although no message
// carries its ID.
func TestHandoversAreTraced(t *testing.T) {
	wall := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	slots := slot.SetOf(rangeOf(0, 3))
	versions := []*table.Table{
		runsOf(1, nil, table.Run{Slots: rangeOf(0, 8), Owner: "a", Epoch: 1}),
		runsOf(2, nil, table.Run{Slots: rangeOf(0, 3), Owner: "a", Epoch: 1, Next: "b"},
			table.Run{Slots: rangeOf(4, 8), Owner: "a", Epoch: 1}),
		runsOf(3, map[uint64]table.Note{3: {Cause: table.CauseHanded}},
			table.Run{Slots: rangeOf(0, 3), Owner: "b", Epoch: 3, Unsettled: true},
			table.Run{Slots: rangeOf(4, 8), Owner: "a", Epoch: 1}),
	}
	from, to := New("a"), New("b")
	for n, at := range []time.Duration{ms(0), ms(100)} {
		from.Seen(at, versions[n])
		to.Seen(at, versions[n])
	}
	to.Warming(slots, 1)
	to.Warmed(ms(130), slots, 1)
	from.Draining(ms(140), slots, 1)
	from.Drained(ms(150), slots, 1)
	given := from.Seen(ms(160), versions[2])
	to.Seen(ms(170), versions[2])
	came := to.Opened(ms(180), wall.Add(ms(180)), slots)

	r := &recorder{spans: map[string]recorded{}}
	Tracing{r, "default/website", "a"}.Went("uid", Moment{ms(160), wall.Add(ms(160))}, given)
	Tracing{r, "default/website", "b"}.Came("uid", Moment{ms(180), wall.Add(ms(180))}, came)
	want := map[string][2]int{"handover": {100, 180}, "warm": {100, 130}, "drain": {140, 150}, "transfer": {150, 160},
		"activate": {170, 180}}
	parent := r.spans["handover"].parent
	for name, at := range want {
		s := r.spans[name]
		if !s.begun.Equal(wall.Add(ms(at[0]))) || !s.ended.Equal(wall.Add(ms(at[1]))) {
			t.Errorf("%s lasts from %v to %v, want %v", name, s.begun.Sub(wall), s.ended.Sub(wall), at)
		}
		if s.parent.TraceID() != parent.TraceID() || !s.parent.IsValid() {
			t.Errorf("%s is in trace %v, handover in %v", name, s.parent.TraceID(), parent.TraceID())
		}
		if inner := name == "warm" || name == "activate"; inner != (s.parent.SpanID() == trace.SpanID{1}) {
			t.Errorf("the parent of %s is %v", name, s.parent.SpanID())
		}
		member := "b"
		if name == "drain" || name == "transfer" {
			member = "a"
		}
		values := map[string]string{"rota.name": "default/website", "rota.member": member, "rota.from": "a", "rota.to": "b",
			"rota.epoch": "3", "rota.slots": "0-3", "rota.slot_count": "4"}
		if name == "handover" {
			values["rota.cause"], values["rota.stall_seconds"] = "handed", "0.01"
		}
		if diff := cmp.Diff(values, s.values); diff != "" {
			t.Errorf("%s -want +got:\n%s", name, diff)
		}
	}
	if len(r.spans) != len(want) {
		t.Errorf("spans %v", r.spans)
	}
}

// TestSpansStaySmall: a span names the first slots, and counts all.
func TestSpansStaySmall(t *testing.T) {
	var slots slot.Set
	for n := range slot.Slot(200) {
		slots.Add(2 * n)
	}
	var named, count string
	for _, a := range (Tracing{}).attributes(step{}, slots) {
		switch a.Key {
		case attribute.Key("rota.slots"):
			named = a.Value.AsString()
		case attribute.Key("rota.slot_count"):
			count = a.Value.Emit()
		}
	}
	if strings.Count(named, ",") != spanRuns-1 || count != "200" {
		t.Errorf("%s slots, named %q", count, named)
	}
}

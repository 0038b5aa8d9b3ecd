package moves

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Spans of a handover. The phases are as in coverage.Handover.
const (
	tracerName   = "github.com/rota-dev/rota"
	spanHandover = "handover"
	spanTransfer = "transfer"
	// spanRuns is how many runs of slots a span lists.
	spanRuns = 32
)

// Tracing sends spans of finished handovers to OpenTelemetry. All members derive the trace and its parent span from the
// table's data about the handover, so no message has to carry them. Methods call the provider, which may block.
type Tracing struct {
	tracer trace.Tracer
	rota   string // namespace/name
	member string
}

// NewTracing returns the Tracing for a member. rota is the rota's namespace/name.
func NewTracing(provider trace.TracerProvider, rota, member string) Tracing {
	return Tracing{provider.Tracer(tracerName), rota, member}
}

// Moment maps the monotonic clock of moves to wall time.
type Moment struct {
	Mono time.Duration
	Wall time.Time
}

func (m Moment) at(mono time.Duration) trace.SpanEventOption {
	return trace.WithTimestamp(m.Wall.Add(mono - m.Mono))
}

// step identifies slots that came or left together.
type step struct {
	from, to, duty string
	epoch          uint64
	cause          table.Cause
}

// parentOf returns the parent of all spans of a handover, which no member sends. uid is the UID of the table's
// ConfigMap. Epoch and new owner identify the slots, because only one version of the table gives slots to a member at
// that epoch. The slots themselves would not: some may have moved on before a member sees the table. Neither would the
// former owner, which a member that missed a version does not know.
func parentOf(uid string, s step) trace.SpanContext {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(uid+"\x00"+s.to+"\x00"+s.duty+"\x00"), s.epoch))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// span sends a span of a handover. ctx carries its parent.
func (t Tracing) span(ctx context.Context, name string, begun, ended trace.SpanEventOption,
	attributes ...attribute.KeyValue,
) context.Context {
	ctx, span := t.tracer.Start(ctx, name, begun, trace.WithAttributes(attributes...))
	span.End(ended)
	return ctx
}

// attributes returns the attributes of a handover. If its slots are far apart, only the first are listed. Their number
// includes all.
func (t Tracing) attributes(s step, slots slot.Set) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("rota.name", t.rota), attribute.String("rota.member", t.member),
		attribute.String("rota.from", s.from), attribute.String("rota.to", s.to),
		attribute.Int64("rota.epoch", int64(s.epoch)), // would overflow after 292 years of one version per nanosecond
	}
	if s.duty != "" {
		return append(out, attribute.String("rota.duty", s.duty))
	}
	runs := slots.Ranges()
	return append(out, attribute.String("rota.slots", slot.SetOf(runs[:min(len(runs), spanRuns)]...).String()),
		attribute.Int("rota.slot_count", slots.Len()))
}

// Came sends the spans of slots that have arrived at this member.
func (t Tracing) Came(uid string, now Moment, all []Landed) {
	for s, group := range grouped(all, func(l Landed) step {
		return step{from: l.from, to: t.member, duty: l.Duty, epoch: l.epoch, cause: l.Cause}
	}) {
		var slots slot.Set
		since, warmed, owned, stall := group[0].since, time.Duration(0), group[0].begun, time.Duration(0)
		for _, l := range group {
			slots.Add(l.Slot)
			since, owned, stall = min(since, l.since), min(owned, l.begun), max(stall, l.Stall)
			if l.warm > 0 {
				warmed = max(warmed, l.since+l.warm)
			}
		}
		attributes := t.attributes(s, slots)
		ctx := trace.ContextWithRemoteSpanContext(context.Background(), parentOf(uid, s))
		ctx = t.span(ctx, spanHandover, now.at(since), now.at(now.Mono), append(attributes,
			attribute.String("rota.cause", s.cause.String()), attribute.Float64("rota.stall_seconds", stall.Seconds()))...)
		if warmed > 0 {
			t.span(ctx, PhaseWarm, now.at(since), now.at(warmed), attributes...)
		}
		t.span(ctx, PhaseActivate, now.at(owned), now.at(now.Mono), attributes...)
	}
}

// Went sends the spans of slots that this member has given to others.
func (t Tracing) Went(uid string, now Moment, all []Given) {
	for s, group := range grouped(all, func(g Given) step {
		return step{from: t.member, to: g.to, duty: g.duty, epoch: g.epoch}
	}) {
		var slots slot.Set
		begun, drained := group[0].begun, group[0].drained
		for _, g := range group {
			slots.Add(g.slot)
			begun, drained = min(begun, g.begun), max(drained, g.drained)
		}
		ctx := trace.ContextWithRemoteSpanContext(context.Background(), parentOf(uid, s))
		t.span(ctx, PhaseDrain, now.at(begun), now.at(drained), t.attributes(s, slots)...)
		t.span(ctx, spanTransfer, now.at(drained), now.at(now.Mono), t.attributes(s, slots)...)
	}
}

// grouped groups the elements by key, without the rota's own duties.
func grouped[T any](all []T, key func(T) step) map[step][]T {
	out := map[step][]T{}
	for _, one := range all {
		if k := key(one); !table.OwnDuty(k.duty) {
			out[k] = append(out[k], one)
		}
	}
	return out
}

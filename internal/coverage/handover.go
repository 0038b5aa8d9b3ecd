package coverage

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Handover is a finished move of slots, or of a duty, to the member that reports it. The member works on them.
type Handover struct {
	// Slots are the hash slots that came with one version of the table; if there are too many runs of slots, only the
	// first. Count is the number of all of them, 1 for a duty. Duty is the duty's name, empty for slots.
	Slots slot.Set
	Count int
	Duty  string
	// From is the ID of the former owner, empty if there was none or the member never saw it.
	From  string
	Cause table.Cause
	// Epoch is the table's epoch at which the member got the slots. Ended is when it began to work on the last of them, on
	// its wall clock.
	Epoch uint64
	Ended time.Time
	// Warm is the time from the first table that planned the move until the member held the objects, Drain from then until
	// it owned the slots, and Activate from then until it worked on them. All are measured on the member's monotonic
	// clock, for the slot that took longest. A phase that did not happen is 0.
	Warm, Drain, Activate time.Duration
}

const (
	// handoverRuns is how many runs of slots a handover lists.
	handoverRuns = 32
	// maxHandovers is the size in bytes above which the oldest handovers are left out.
	maxHandovers = 8 << 10
	// handoverTime has milliseconds and a fixed length.
	handoverTime = "2006-01-02T15:04:05.000Z"
	dutyPrefix   = "duty:"
	noMember     = "-"
)

// encodeHandovers writes as many handovers as fit, starting with the first.
func encodeHandovers(handovers []Handover, limit int) string {
	var b strings.Builder
	for _, h := range handovers {
		line := h.line()
		if b.Len()+len(line) > limit {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func (h *Handover) line() string {
	from, what := h.From, dutyPrefix+h.Duty
	if from == "" {
		from = noMember
	}
	if h.Duty == "" {
		runs := h.Slots.Ranges()
		what = slot.SetOf(runs[:min(len(runs), handoverRuns)]...).String()
	}
	return fmt.Sprintf("%d %s %s %s %v %v %v %d %s\n", h.Epoch, h.Ended.UTC().Format(handoverTime), h.Cause, from,
		h.Warm.Round(time.Millisecond), h.Drain.Round(time.Millisecond), h.Activate.Round(time.Millisecond), h.Count, what)
}

func parseHandover(line string) (Handover, error) {
	words := strings.Fields(line)
	if len(words) != 9 {
		return Handover{}, fmt.Errorf("%d words, want 9", len(words))
	}
	h := Handover{From: words[3]}
	if h.From == noMember {
		h.From = ""
	}
	var err error
	if h.Epoch, err = strconv.ParseUint(words[0], 10, 64); err != nil {
		return h, err
	}
	if h.Ended, err = time.Parse(handoverTime, words[1]); err != nil {
		return h, err
	}
	for _, c := range []table.Cause{table.CauseAssigned, table.CauseHanded, table.CauseExpelled} {
		if words[2] == c.String() {
			h.Cause = c
		}
	}
	if h.Cause == table.CauseUnknown {
		return h, fmt.Errorf("%q is not a cause", words[2])
	}
	for n, phase := range []*time.Duration{&h.Warm, &h.Drain, &h.Activate} {
		if *phase, err = time.ParseDuration(words[4+n]); err != nil || *phase < 0 {
			return h, fmt.Errorf("%q is not a duration", words[4+n])
		}
	}
	if h.Count, err = strconv.Atoi(words[7]); err != nil {
		return h, err
	}
	if name, duty := strings.CutPrefix(words[8], dutyPrefix); duty {
		if h.Duty = name; name == "" || h.Count != 1 {
			return h, fmt.Errorf("%q is not a duty", words[8])
		}
		return h, nil
	}
	if h.Slots, err = slot.ParseSet(words[8]); err != nil {
		return h, err
	}
	if h.Count < h.Slots.Len() || h.Count > slot.MaxCount {
		return h, fmt.Errorf("%d is not a number of slots", h.Count)
	}
	return h, nil
}

package coverage

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Refused is a kind whose lists or watches fail on a member.
type Refused struct {
	Kind schema.GroupKind
	// Since is when they began to fail, by the member's wall clock, in whole seconds.
	Since time.Time
	// Without are open slots of which the member has no objects of the kind.
	Without slot.Set
	// Error is what the API server answers, in one line of 500 bytes at most.
	Error string
}

// String returns a sentence that names the kind, the slots without it, the time and the error, and what follows.
func (r Refused) String() string {
	text := fmt.Sprintf("the API server has refused to list or watch %s since %s: what members hold of it may be old",
		r.Kind, r.Since.UTC().Format(time.RFC3339))
	if !r.Without.Empty() {
		text += fmt.Sprintf("; controllers that need it do not work on slots %s, which came since", r.Without)
	}
	return text + ": " + shortened(r.Error, maxRefusal)
}

const (
	// fieldRefused has a line for each kind: kind, since, slots without it, error.
	fieldRefused = "refused"
	// maxRefused is the size in bytes above which the last kinds are left out.
	maxRefused = 16 << 10
	// maxRefusal is how many bytes of an error a report has.
	maxRefusal = 500
)

func encodeRefused(all []Refused) string {
	var b strings.Builder
	for _, u := range all {
		without := u.Without.String()
		if u.Without.Empty() {
			without = "-"
		}
		line := fmt.Sprintf("%s %s %s %s\n", u.Kind, timeText(u.Since), without,
			strconv.Quote(shortened(u.Error, maxRefusal)))
		if b.Len()+len(line) > maxRefused {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func (r *Report) decodeRefused(text string) error {
	for i, line := range lines(text) {
		u, err := parseRefused(line)
		if err != nil {
			return fmt.Errorf("%w: %w", r.lineError(fieldRefused, i, line), err)
		}
		r.Refused = append(r.Refused, u)
	}
	return nil
}

func parseRefused(line string) (u Refused, err error) {
	words, err := quotedFields(line)
	if err != nil {
		return u, err
	}
	if len(words) != 4 {
		return u, fmt.Errorf("%d words, want 4", len(words))
	}
	u.Kind, u.Error = schema.ParseGroupKind(words[0]), shortened(words[3], maxRefusal)
	if u.Since, err = time.Parse(time.RFC3339, words[1]); err != nil || words[2] == "-" {
		return u, err
	}
	u.Without, err = slot.ParseSet(words[2])
	return u, err
}

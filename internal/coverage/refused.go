package coverage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Refused is a kind whose lists or watches fail on a member.
type Refused struct {
	Kind schema.GroupKind
	// Since is when they began to fail, on the member's wall clock, in whole seconds.
	Since time.Time
	// Without are open slots for which the member has no objects of the kind.
	Without slot.Set
	// Error is the API server's answer, in one line of at most 500 bytes.
	Error string
}

// String returns a sentence with the kind, the slots without it, the time, the error, and the consequences.
func (r Refused) String() string {
	text := fmt.Sprintf("the API server has refused to list or watch %s since %s: what members hold of it may be old",
		r.Kind, r.Since.UTC().Format(time.RFC3339))
	if !r.Without.Empty() {
		text += fmt.Sprintf("; controllers that need it do not work on slots %s, which came since", r.Without)
	}
	return text + ": " + shortened(r.Error, maxRefusal)
}

// Unlabelled returns a sentence for an entry of Report.Unlabelled.
func (r Refused) Unlabelled() string {
	return fmt.Sprintf("the API server has refused the labels by which objects of %s are delivered since %s. Members get "+
		"all objects of the kind meanwhile, as with Filter, and keep their share. Slots: %s; %s", r.Kind,
		r.Since.UTC().Format(time.RFC3339), r.Without, shortened(r.Error, maxRefusal))
}

// MergeRefused merges the entries of each kind: all its slots, with the time and error of its first failure.
func MergeRefused(all []Refused) (out []Refused) {
	for _, r := range all {
		at := slices.IndexFunc(out, func(o Refused) bool { return o.Kind == r.Kind })
		if at < 0 {
			out = append(out, r)
			continue
		}
		without := out[at].Without.Union(r.Without)
		if r.Since.Before(out[at].Since) {
			out[at] = r
		}
		out[at].Without = without
	}
	return out
}

const (
	// fieldRefused and fieldUnlabelled contain a line for each kind: kind, since, slots without it, error.
	fieldRefused    = "refused"
	fieldUnlabelled = "unlabelled"
	// maxRefused is the size in bytes above which the last kinds are left out.
	maxRefused = 16 << 10
	// maxRefusal is the length in bytes to which errors are cut.
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

func (r *Report) decodeRefused(field, text string) (out []Refused, err error) {
	for i, line := range lines(text) {
		u, err := parseRefused(line)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", r.lineError(field, i, line), err)
		}
		out = append(out, u)
	}
	return out, nil
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

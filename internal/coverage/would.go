package coverage

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Would is what a member of a shadow would hold of a kind, if the rota worked.
type Would struct {
	Kind schema.GroupKind
	// Objects is how many objects it would own, and Unlabelled how many of them delivery SlotLabel would label.
	Objects, Unlabelled int
	// Changed is how many of them changed during Over, which is in whole seconds and 0 if unknown. Several changes of an
	// object count once.
	Changed int
	Over    time.Duration
}

// Compare orders by kind.
func (w Would) Compare(other Would) int { return byName(w.Kind, other.Kind) }

// fieldWould contains a line for each kind: kind, objects, unlabelled, changed, seconds.
const fieldWould = "would"

func encodeWould(all []Would) string {
	var out strings.Builder
	for _, w := range all {
		fmt.Fprintf(&out, "%s %d %d %d %d\n", w.Kind, w.Objects, w.Unlabelled, w.Changed, int64(w.Over/time.Second))
	}
	return out.String()
}

func (r *Report) decodeWould(text string) error {
	for i, line := range lines(text) {
		words := strings.Fields(line)
		if len(words) != 5 {
			return r.lineError(fieldWould, i, line)
		}
		var n [4]int
		for j, word := range words[1:] {
			v, err := strconv.ParseUint(word, 10, 31)
			if err != nil {
				return r.lineError(fieldWould, i, line)
			}
			n[j] = int(v)
		}
		r.Would = append(r.Would, Would{Kind: schema.ParseGroupKind(words[0]), Objects: n[0], Unlabelled: n[1],
			Changed: n[2], Over: time.Duration(n[3]) * time.Second})
	}
	return nil
}

package coverage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

const (
	// HangingAfter is how long a reconcile must have been in flight before a member reports it.
	HangingAfter = time.Minute
	// FailingInRow is how often in a row an object must have failed before a member reports it. Conflicts fail once or
	// twice.
	FailingInRow = 3
)

// Health describes a member's reconciles that hang or fail, by object.
type Health struct {
	// Hanging is how many reconciles have been in flight for HangingAfter or longer. Failing is how many objects have
	// failed FailingInRow times or more; a member counts at most 1,000 objects for each controller.
	Hanging, Failing int
	// Worst lists some of them: first the reconciles in flight for longest, then the objects that have failed for longest.
	// A member lists five of each.
	Worst []KeyHealth
}

// Blocked is a controller whose workers have all been busy with one object each for HangingAfter or longer.
type Blocked struct {
	Controller string
	Workers    int
	// Waiting is how many objects wait for a worker, and For how long the oldest has waited, in whole seconds.
	Waiting int
	For     time.Duration
}

// KeyHealth is an object whose reconcile has been in flight for long, or has failed several times in a row. All times
// are on the member's wall clock, in whole seconds.
type KeyHealth struct {
	// Controller is the name of the controller or queue.
	Controller string
	Kind       schema.GroupKind
	Object     types.NamespacedName
	Slot       slot.Slot
	// Running is when the reconcile in flight began. It is zero if there is none, or none older than HangingAfter.
	Running time.Time
	// Failures is how many reconciles have failed since the last success, 0 if the last one succeeded. Panics is how many
	// of them panicked. Since is when the first failed, and Last when the last one did.
	Failures, Panics int
	Since, Last      time.Time
	// Error is the text (ErrorText) of the last error, empty if the key was only added again with a backoff.
	Error string
}

const (
	// maxError is the length in bytes to which errors in a report are cut.
	maxError = 200
	// maxHealth is the size in bytes above which the last of the worst are left out.
	maxHealth = 16 << 10
	// fieldHealth contains the two numbers, and then a line for each of the worst: kind, object, slot, running since,
	// failures, panics, failing since, last failure, controller, error. Text from other sources is quoted.
	fieldHealth = "health"
	// fieldBlocked contains a line for each blocked controller: controller, workers, waiting, seconds.
	fieldBlocked = "blocked"
	noTime       = "-"
)

// ErrorText returns the text of an error for reports: one line without control characters, at most 200 bytes.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	return shortened(err.Error(), maxError)
}

// shortened makes a text safe for a terminal and cuts it to most bytes. It reads no more of the text than it needs.
func shortened(text string, most int) string {
	long := len(text) > 4*most
	if long {
		text = text[:4*most]
	}
	text = strings.Map(func(c rune) rune {
		switch {
		case unicode.IsSpace(c):
			return ' '
		case !unicode.IsPrint(c):
			return utf8.RuneError
		}
		return c
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	const more = "…"
	if len(text) <= most && !long {
		return text
	}
	end := min(len(text), most-len(more))
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// Hangs reports whether the object's reconcile has been in flight for HangingAfter or longer.
func (k *KeyHealth) Hangs() bool { return !k.Running.IsZero() }

// Fails reports whether the object has failed FailingInRow times or more.
func (k *KeyHealth) Fails() bool { return k.Failures >= FailingInRow }

// encodeHealth writes as many of the worst as fit.
func encodeHealth(h Health, limit int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d\n", h.Hanging, h.Failing)
	for _, k := range h.Worst {
		line := k.line()
		if b.Len()+len(line) > limit {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func (k *KeyHealth) line() string {
	return fmt.Sprintf("%s %s %d %s %d %d %s %s %s %s\n", k.Kind, strconv.Quote(k.Object.String()), k.Slot,
		timeText(k.Running), k.Failures, k.Panics, timeText(k.Since), timeText(k.Last), strconv.Quote(k.Controller),
		strconv.Quote(k.Error))
}

func timeText(at time.Time) string {
	if at.IsZero() {
		return noTime
	}
	return at.UTC().Format(time.RFC3339)
}

func (r *Report) decodeHealth(text string) error {
	for i, line := range lines(text) {
		var err error
		if i == 0 {
			_, err = fmt.Sscanf(line, "%d %d", &r.Health.Hanging, &r.Health.Failing)
		} else {
			var k KeyHealth
			k, err = parseHealth(line)
			r.Health.Worst = append(r.Health.Worst, k)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", r.lineError(fieldHealth, i, line), err)
		}
	}
	return nil
}

func encodeBlocked(all []Blocked) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "%q %d %d %d\n", c.Controller, c.Workers, c.Waiting, c.For/time.Second)
	}
	return b.String()
}

func (r *Report) decodeBlocked(text string) error {
	for i, line := range lines(text) {
		var b Blocked
		if _, err := fmt.Sscanf(line, "%q %d %d %d", &b.Controller, &b.Workers, &b.Waiting, &b.For); err != nil {
			return fmt.Errorf("%w: %w", r.lineError(fieldBlocked, i, line), err)
		}
		b.For *= time.Second
		r.Blocked = append(r.Blocked, b)
	}
	return nil
}

func parseHealth(line string) (KeyHealth, error) {
	words, err := quotedFields(line)
	if err != nil {
		return KeyHealth{}, err
	}
	if len(words) != 10 {
		return KeyHealth{}, fmt.Errorf("%d words, want 10", len(words))
	}
	namespace, name, ok := strings.Cut(words[1], "/")
	if !ok {
		return KeyHealth{}, fmt.Errorf("%q is not a namespace/name", words[1])
	}
	k := KeyHealth{Kind: schema.ParseGroupKind(words[0]), Object: types.NamespacedName{Namespace: namespace, Name: name},
		Controller: words[8], Error: shortened(words[9], maxError)}
	if k.Slot, err = parseSlot(words[2]); err != nil {
		return KeyHealth{}, err
	}
	for at, to := range map[int]*time.Time{3: &k.Running, 6: &k.Since, 7: &k.Last} {
		if words[at] == noTime {
			continue
		}
		if *to, err = time.Parse(time.RFC3339, words[at]); err != nil {
			return KeyHealth{}, err
		}
	}
	for at, to := range map[int]*int{4: &k.Failures, 5: &k.Panics} {
		n, err := strconv.ParseUint(words[at], 10, 31)
		if err != nil {
			return KeyHealth{}, err
		}
		*to = int(n)
	}
	return k, nil
}

// quotedFields splits a line at spaces. Fields may be quoted as by strconv.Quote.
func quotedFields(line string) ([]string, error) {
	var out []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			out, line = append(out, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, fmt.Errorf("%.20q is not quoted text: %w", line, err)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		out, line = append(out, word), line[len(quoted):]
	}
	return out, nil
}

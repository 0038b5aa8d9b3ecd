package coverage

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/protocol/trial"
)

// Trial holds the results of a member's reconciles since it saw a step of a canary begin, and how many of its objects
// keep failing (rule R22).
type Trial struct {
	// Build, Began and Step are as in table.Canary.
	Build string
	Began int64
	Step  int
	trial.Side
}

// counts returns pointers to the numbers of a trial except Step, in the order of a report.
func (t *Trial) counts() []*int64 {
	return []*int64{
		&t.Objects, &t.Ailing, &t.Failing, &t.Tries, &t.Seen, &t.Arrived, &t.ArrivedFailed, &t.Changed, &t.Failed,
	}
}

// encode returns build, began, step and the counts. For each sort of tries follow their number and the sums of their
// seconds, of the squares, of the logarithms and of the logarithms' squares.
func (t *Trial) encode() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %d %d", t.Build, t.Began, t.Step)
	for _, n := range t.counts() {
		fmt.Fprintf(&out, " %d", *n)
	}
	for _, of := range t.Times {
		fmt.Fprintf(&out, " %d", of.N)
		for _, x := range []float64{of.Seconds, of.Squares, of.Logs, of.LogSquares} {
			out.WriteString(" " + strconv.FormatFloat(x, 'g', 9, 64))
		}
	}
	return out.String()
}

// decodeTrial is the inverse of encode. Empty text means no trial.
func (r *Report) decodeTrial(text string) error {
	if text == "" {
		return nil
	}
	w := strings.Fields(text)
	t := &Trial{}
	const names, each = 3, 5
	columns := names + len(t.counts())
	if len(w) != columns+each*trial.Sorts {
		return r.lineError(fieldTrial, 0, text)
	}
	t.Build = w[0]
	ok := true
	number := func(word string) int64 {
		n, err := strconv.ParseInt(word, 10, 64)
		ok = ok && err == nil
		return n
	}
	float := func(word string) float64 {
		x, err := strconv.ParseFloat(word, 64)
		ok = ok && err == nil
		return x
	}
	t.Began, t.Step = number(w[1]), int(number(w[2]))
	for i, n := range t.counts() {
		*n = number(w[names+i])
	}
	for i := range t.Times {
		of := w[columns+each*i:]
		t.Times[i] = trial.Times{
			N: number(of[0]), Seconds: float(of[1]), Squares: float(of[2]), Logs: float(of[3]), LogSquares: float(of[4]),
		}
	}
	if !ok || !t.Possible() {
		return r.lineError(fieldTrial, 0, text)
	}
	r.Trial = t
	return nil
}

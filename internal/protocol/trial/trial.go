// Package trial compares how reconciles of a canary's members go with how those of the others do (rule R22).
package trial

import (
	"fmt"
	"math"
	"time"
)

// Side is what members of one sort report.
type Side struct {
	// Tally is of a step of the canary.
	Tally
	// Objects is how many they have now, and Failing how many of these keep failing, or hang.
	Objects, Failing int64
}

// Plus returns the sum of two sides.
func (s Side) Plus(other Side) Side {
	return Side{s.Tally.Plus(other.Tally), s.Objects + other.Objects, s.Failing + other.Failing}
}

// Possible says that a side can be true.
func (s Side) Possible() bool {
	return s.Tally.Possible() && s.Failing >= 0 && s.Objects >= 0 && s.Objects < most && s.Failing < most
}

// most is more than there ever is of anything.
const most = 1 << 50

// Tally is what came of tries: reconciles, but for those of objects whose last one failed. So an object that keeps
// failing counts once, however often it is tried again. The zero value has no tries.
type Tally struct {
	// Changed of the tries are not those that a handover brings: these come all at once, and of the objects that fail with
	// every build each fails once more. Failed of the former failed. Timed of them did not wait for a worker: others are
	// worked on beside many.
	Tries, Changed, Failed, Timed int64
	// Seconds is the sum of how long those took that Timed counts, Squares that of the squares. Logs and LogSquares are of
	// the natural logarithms: of a mean that a few long ones do not change.
	Seconds, Squares, Logs, LogSquares float64
}

// shortest is how long a try takes at least, so that it has a logarithm.
const shortest = time.Microsecond

// Arrived counts a try that a handover brought.
func (t *Tally) Arrived() { t.Tries++ }

// Add counts another try.
func (t *Tally) Add(failed bool) {
	t.Tries++
	t.Changed++
	if failed {
		t.Failed++
	}
}

// Time counts how long it took.
func (t *Tally) Time(took time.Duration) {
	t.Timed++
	s := max(took, shortest).Seconds()
	l := math.Log(s)
	t.Seconds += s
	t.Squares += s * s
	t.Logs += l
	t.LogSquares += l * l
}

// Plus returns the sum of two tallies.
func (t Tally) Plus(other Tally) Tally {
	return Tally{
		Tries: t.Tries + other.Tries, Changed: t.Changed + other.Changed, Failed: t.Failed + other.Failed, Timed: t.Timed + other.Timed, Seconds: t.Seconds + other.Seconds,
		Squares: t.Squares + other.Squares, Logs: t.Logs + other.Logs, LogSquares: t.LogSquares + other.LogSquares,
	}
}

// Minus returns what was counted since an earlier state of the same tally.
func (t Tally) Minus(earlier Tally) Tally {
	return Tally{
		Tries: t.Tries - earlier.Tries, Changed: t.Changed - earlier.Changed, Failed: t.Failed - earlier.Failed, Timed: t.Timed - earlier.Timed, Seconds: t.Seconds - earlier.Seconds,
		Squares: t.Squares - earlier.Squares, Logs: t.Logs - earlier.Logs, LogSquares: t.LogSquares - earlier.LogSquares,
	}
}

// Possible says that a tally can be true.
func (t Tally) Possible() bool {
	for _, x := range []float64{t.Seconds, t.Squares, t.Logs, t.LogSquares} {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return t.Tries >= 0 && t.Tries < most && t.Changed >= 0 && t.Changed <= t.Tries && t.Failed >= 0 && t.Failed <= t.Changed && t.Timed >= 0 && t.Timed <= t.Changed && t.Seconds >= 0 && t.Squares >= 0 &&
		t.LogSquares >= 0
}

const (
	// Enough is how many tries of the canary's, and of the others', a verdict needs that it is good. Of so many of a
	// build that fails with 2 % of all objects, two or more fail in 98 of 100 cases.
	Enough = 300
	// few is how many timed ones a verdict needs, that it takes longer and that it does not.
	few = 30
	// worse is by how much the part of tries that fail must be larger to matter, slower by which factor tries must take
	// longer, and longer by how much at least.
	worse, slower, longer = 0.005, 1.5, 5 * time.Millisecond
	// sure is the probability of chance below which the canary is bad, and sureBy the same in standard deviations: there
	// are many looks at it. suspect and suspectBy are those from which on it is not good.
	sure, suspect     = 1e-4, 0.05
	sureBy, suspectBy = 4, 2
)

// Verdict is what a comparison comes to.
type Verdict struct {
	// Bad says that the canary fails more often or takes longer. Good: there are enough tries, and nothing speaks against
	// it. Neither: not yet.
	Bad, Good bool
	// Text has the figures that were compared, in one line.
	Text string
}

// Compare compares the canary's tries with those of the others meanwhile.
//
// Two parts are compared: of the objects that keep failing now, and of the tries that failed. The former shows a build
// that fails for certain objects, however often the others are reconciled, and the latter one that fails now and then
// for any. They are compared by the conditional test of two Poisson rates (Przyborowski and Wilenski, 1940): of all
// failures, the canary has as many by chance as a binomial distribution says. Means of how long tries take, and of
// their logarithms, are compared by Welch's statistic (1947).
func Compare(canary, others Side) Verdict {
	v := Verdict{Text: fmt.Sprintf("%s; others: %s", canary.text(), others.text())}
	chance := math.Min(
		chanceOf(canary.Failing, canary.Objects, others.Failing, others.Objects),
		chanceOf(canary.Failed, canary.Changed, others.Failed, others.Changed))
	by := slowerBy(canary.Tally, others.Tally)
	timed := canary.Timed >= few && others.Timed >= few
	if !timed {
		by = math.Min(by, suspectBy)
	}
	switch {
	case chance < sure:
		v.Bad, v.Text = true, "it fails more often: "+v.Text
	case by > sureBy:
		v.Bad, v.Text = true, "it takes longer: "+v.Text
	case canary.Tries < Enough || others.Tries < Enough:
		v.Text = fmt.Sprintf("fewer than %d reconciles: %s", Enough, v.Text)
	case !timed:
		v.Text = fmt.Sprintf("fewer than %d reconciles of changes that did not wait for a worker: %s", few, v.Text)
	case chance < suspect || by > suspectBy:
		v.Text = "it may be worse: " + v.Text
	default:
		v.Good = true
	}
	return v
}

// chanceOf is the probability that k or more of n are so by chance where l of m others are; 1 if the difference does not
// matter.
func chanceOf(k, n, l, m int64) float64 {
	k, l = min(k, n), min(l, m)
	if part(k, n)-part(l, m) <= worse {
		return 1
	}
	return tail(k+l, k, part(n, n+m))
}

// slowerBy is by how many standard deviations tries take longer than others'; 0 if the difference does not matter.
func slowerBy(t, others Tally) float64 {
	return math.Max(
		longerBy(mean(t.Seconds, t), mean(others.Seconds, others),
			welch(t.Timed, t.Seconds, t.Squares, others.Timed, others.Seconds, others.Squares)),
		longerBy(math.Exp(mean(t.Logs, t)), math.Exp(mean(others.Logs, others)),
			welch(t.Timed, t.Logs, t.LogSquares, others.Timed, others.Logs, others.LogSquares)))
}

func part(k, n int64) float64 { return float64(k) / float64(max(n, 1)) }

func mean(sum float64, of Tally) float64 { return sum / float64(max(of.Timed, 1)) }

// text is how people read a side.
func (s Side) text() string {
	text := s.Tally.text()
	if s.Failing > 0 {
		text += fmt.Sprintf(", and %d of %d objects keep failing", s.Failing, s.Objects)
	}
	return text
}

func (t Tally) text() string {
	if t.Tries == 0 {
		return "no reconciles"
	}
	if t.Changed == 0 {
		return fmt.Sprintf("%d reconciles", t.Tries)
	}
	text := fmt.Sprintf("%d reconciles, %d of %d of changes failed (%.2f %%)", t.Tries, t.Failed, t.Changed,
		100*part(t.Failed, t.Changed))
	if t.Timed == 0 {
		return text
	}
	took := time.Duration(mean(t.Seconds, t) * float64(time.Second))
	switch {
	case took > time.Second:
		took = took.Round(10 * time.Millisecond)
	case took > time.Millisecond:
		took = took.Round(100 * time.Microsecond)
	default:
		took = took.Round(time.Microsecond)
	}
	return fmt.Sprintf("%s, mean %v", text, took)
}

// longerBy returns a statistic if the means that it is of differ enough to matter, and 0 otherwise.
func longerBy(mean, other, statistic float64) float64 {
	if mean < slower*other || mean-other < longer.Seconds() {
		return 0
	}
	return statistic
}

// welch returns by how many standard deviations the mean of n values is above that of m others.
func welch(n int64, sum, squares float64, m int64, otherSum, otherSquares float64) float64 {
	if n < 2 || m < 2 {
		return 0
	}
	x, vx := moments(float64(n), sum, squares)
	y, vy := moments(float64(m), otherSum, otherSquares)
	deviation := math.Sqrt(vx/float64(n) + vy/float64(m))
	if x <= y {
		return 0
	}
	return (x - y) / math.Max(deviation, 1e-12)
}

func moments(n, sum, squares float64) (mean, variance float64) {
	mean = sum / n
	return mean, math.Max(squares-n*mean*mean, 0) / (n - 1)
}

// tail returns the probability that k or more of n have what each has with probability p. p is above 0 if k is.
func tail(n, k int64, p float64) (sum float64) {
	if k <= 0 {
		return 1
	}
	if p >= 1 {
		return 1
	}
	logs := func(x int64) float64 {
		l, _ := math.Lgamma(float64(x) + 1)
		return l
	}
	if mean := p * float64(n); float64(k) <= mean {
		return 1 // more than chance would have; the exact figure does not matter
	}
	for i := k; i <= n; i++ {
		term := math.Exp(logs(n) - logs(i) - logs(n-i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		sum += term
		if term < sum*1e-9 {
			break // above the mean, each is smaller than the one before
		}
	}
	return math.Min(sum, 1)
}

// Package trial compares how reconciles of a canary's members go with how those of the others do (rule R22).
package trial

import (
	"fmt"
	"math"
	"math/bits"
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
	// every build each fails once more. Failed of the former failed.
	Tries, Changed, Failed int64
	// Times are how long those that Changed counts took, by how many the member worked on beside them: none, up to 2, up
	// to 6, more.
	Times [Sorts]Times
}

// Sorts is how many sorts of tries there are, by how many are worked on beside them.
const Sorts = 4

// Times are how long tries took. Seconds is the sum, Squares that of the squares. Logs and LogSquares are of the
// natural logarithms: of a mean that a few long ones do not change.
type Times struct {
	N                                  int64
	Seconds, Squares, Logs, LogSquares float64
}

// shortest is how long a try takes at least, so that it has a logarithm.
const shortest = time.Microsecond

// Arrived counts a try that a handover brought.
func (t *Tally) Arrived() { t.Tries++ }

// Add counts another try: how long it took, beside how many others, and whether it failed.
func (t *Tally) Add(took time.Duration, beside int, failed bool) {
	t.Tries++
	t.Changed++
	if failed {
		t.Failed++
	}
	of := &t.Times[min(bits.Len(uint(max(beside, 0)+1)), Sorts)-1]
	s := max(took, shortest).Seconds()
	l := math.Log(s)
	of.N++
	of.Seconds += s
	of.Squares += s * s
	of.Logs += l
	of.LogSquares += l * l
}

// plus adds other, times a sign.
func (t Times) plus(other Times, sign float64) Times {
	return Times{
		N: t.N + int64(sign)*other.N, Seconds: t.Seconds + sign*other.Seconds, Squares: t.Squares + sign*other.Squares,
		Logs: t.Logs + sign*other.Logs, LogSquares: t.LogSquares + sign*other.LogSquares,
	}
}

func (t Times) possible() bool {
	for _, x := range []float64{t.Seconds, t.Squares, t.Logs, t.LogSquares} {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return t.N >= 0 && t.N < most && t.Seconds >= 0 && t.Squares >= 0 && t.LogSquares >= 0
}

// plus adds other, times a sign.
func (t Tally) plus(other Tally, sign int64) Tally {
	t.Tries += sign * other.Tries
	t.Changed += sign * other.Changed
	t.Failed += sign * other.Failed
	for i := range t.Times {
		t.Times[i] = t.Times[i].plus(other.Times[i], float64(sign))
	}
	return t
}

// Plus returns the sum of two tallies.
func (t Tally) Plus(other Tally) Tally { return t.plus(other, 1) }

// Minus returns what was counted since an earlier state of the same tally.
func (t Tally) Minus(earlier Tally) Tally { return t.plus(earlier, -1) }

// Possible says that a tally can be true.
func (t Tally) Possible() bool {
	timed := int64(0)
	for _, of := range t.Times {
		if !of.possible() {
			return false
		}
		timed += of.N
	}
	return t.Tries >= 0 && t.Tries < most && t.Changed >= 0 && t.Changed <= t.Tries && t.Failed >= 0 &&
		t.Failed <= t.Changed && timed <= t.Changed
}

const (
	// Enough is how many tries of the canary's, and of the others', a verdict needs that it is good. Of so many of a
	// build that fails with 2 % of all objects, two or more fail in 98 of 100 cases.
	Enough = 300
	// few is how many changes a verdict needs, that it takes longer and that it does not.
	few = 30
	// worse is by how much the part of tries that fail must be larger to matter, slower by which factor tries must take
	// longer, and longer by how much at least.
	worse, slower, longer = 0.005, 2, 5 * time.Millisecond
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
// their logarithms, are compared by Welch's statistic (1947), stratified.
func Compare(canary, others Side) Verdict {
	c := compare(&canary.Times, &others.Times)
	v := Verdict{Text: fmt.Sprintf("%s; others: %s", canary.text(c.n, c.took), others.text(c.n, c.other))}
	chance := math.Min(
		chanceOf(canary.Failing, canary.Objects, others.Failing, others.Objects),
		chanceOf(canary.Failed, canary.Changed, others.Failed, others.Changed))
	by := c.by
	if c.n < few {
		by = math.Min(by, suspectBy)
	}
	switch {
	case chance < sure:
		v.Bad, v.Text = true, "it fails more often: "+v.Text
	case by > sureBy:
		v.Bad, v.Text = true, "it takes longer: "+v.Text
	case canary.Tries < Enough || others.Tries < Enough:
		v.Text = fmt.Sprintf("fewer than %d reconciles: %s", Enough, v.Text)
	case c.n < few:
		v.Text = fmt.Sprintf("fewer than %d reconciles of changes that can be compared: %s", few, v.Text)
	case chance < suspect || by > suspectBy:
		v.Text = "it may be worse: " + v.Text
	default:
		v.Good = true
	}
	return v
}

// chanceOf is the probability that k or more of n are so by chance where l of m others are; 1 if the difference does
// not matter.
func chanceOf(k, n, l, m int64) float64 {
	k, l = min(k, n), min(l, m)
	if part(k, n)-part(l, m) <= worse {
		return 1
	}
	return tail(k+l, k, part(n, n+m))
}

// compared is what comes of comparing times.
type compared struct {
	// n is how many of the canary's could be compared with others'. took and other are the means in seconds.
	n           int64
	took, other float64
	// by is by how many standard deviations the canary's take longer; 0 if the difference does not matter.
	by float64
}

// compare compares times sort by sort, and weighs the differences by how many there are of both: a try takes longer
// beside many others, with any build (stratification, as by Mantel and Haenszel, 1959).
func compare(canary, others *[Sorts]Times) (c compared) {
	var weights, means, otherMeans, variance, logs, otherLogs, logVariance float64
	for i := range canary {
		t, o := canary[i], others[i]
		if t.N < 2 || o.N < 2 {
			continue
		}
		n, m := float64(t.N), float64(o.N)
		w := n * m / (n + m)
		add := func(sum, squares, otherSum, otherSquares float64, mean, otherMean, variance *float64) {
			x, vx := moments(n, sum, squares)
			y, vy := moments(m, otherSum, otherSquares)
			*mean += w * x
			*otherMean += w * y
			*variance += w * w * (vx/n + vy/m)
		}
		add(t.Seconds, t.Squares, o.Seconds, o.Squares, &means, &otherMeans, &variance)
		add(t.Logs, t.LogSquares, o.Logs, o.LogSquares, &logs, &otherLogs, &logVariance)
		weights += w
		c.n += t.N
	}
	if c.n == 0 {
		return c
	}
	c.took, c.other = means/weights, otherMeans/weights
	c.by = math.Max(
		longerBy(c.took, c.other, (means-otherMeans)/math.Sqrt(math.Max(variance, tiny))),
		longerBy(math.Exp(logs/weights), math.Exp(otherLogs/weights),
			(logs-otherLogs)/math.Sqrt(math.Max(logVariance, tiny))))
	return c
}

// tiny is in place of a variance of 0.
const tiny = 1e-24

func part(k, n int64) float64 { return float64(k) / float64(max(n, 1)) }

// text is how people read a side, of which so many were compared, which took so many seconds in the mean.
func (s Side) text(compared int64, mean float64) string {
	if s.Tries == 0 {
		return "no reconciles"
	}
	text := fmt.Sprintf("%d reconciles", s.Tries)
	if s.Changed > 0 {
		text += fmt.Sprintf(", %d of %d of changes failed (%.2f %%)", s.Failed, s.Changed, 100*part(s.Failed, s.Changed))
	}
	if compared > 0 {
		text += fmt.Sprintf(", mean %v", rounded(time.Duration(mean*float64(time.Second))))
	}
	if s.Failing > 0 {
		text += fmt.Sprintf(", and %d of %d objects keep failing", s.Failing, s.Objects)
	}
	return text
}

// rounded leaves out what does not matter.
func rounded(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// longerBy returns a statistic if the means that it is of differ enough to matter, and 0 otherwise.
func longerBy(mean, other, statistic float64) float64 {
	if mean < slower*other || mean-other < longer.Seconds() {
		return 0
	}
	return statistic
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

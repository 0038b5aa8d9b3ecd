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
	// Objects is how many they have now. The last reconcile of Ailing of these failed, and Failing of them keep failing,
	// or hang.
	Objects, Ailing, Failing int64
}

// Plus returns the sum of two sides.
func (s Side) Plus(other Side) Side {
	return Side{
		s.Tally.Plus(other.Tally), s.Objects + other.Objects, s.Ailing + other.Ailing, s.Failing + other.Failing,
	}
}

// Possible says that a side can be true.
func (s Side) Possible() bool {
	for _, n := range []int64{s.Objects, s.Ailing, s.Failing} {
		if n < 0 || n >= most {
			return false
		}
	}
	return s.Tally.Possible()
}

// most is more than there ever is of anything.
const most = 1 << 50

// Tally is what came of tries: reconciles, but for those of objects whose last one failed. All but Tries counts
// objects, each once: one that is tried a thousand times says no more of a build than one that is tried once. The zero
// value has no tries. Objects counts one.
type Tally struct {
	// Tries are of Seen objects.
	Tries, Seen int64
	// Arrived objects were reconciled since a handover brought them, and ArrivedFailed of them failed then. These come all
	// at once, and of the objects that fail with every build each fails once more.
	Arrived, ArrivedFailed int64
	// Changed objects were reconciled because of a change, and Failed of them failed at one change or more.
	Changed, Failed int64
	// Times are how long the first of these reconciles took of each that Changed counts, by how many the member worked on
	// beside it: none, up to 2, up to 6, more.
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

// arrive counts another object that a handover brought.
func (t *Tally) arrive(failed bool) {
	t.Arrived++
	if failed {
		t.ArrivedFailed++
	}
}

// Add counts another object that changed, and its try: how long it took, beside how many others, and whether it failed.
func (t *Tally) Add(took time.Duration, beside int, failed bool) {
	t.Tries++
	t.Seen++
	t.change(took, beside, failed)
}

// change counts another object that changed.
func (t *Tally) change(took time.Duration, beside int, failed bool) {
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

func (t Times) plus(other Times) Times {
	return Times{
		N: t.N + other.N, Seconds: t.Seconds + other.Seconds, Squares: t.Squares + other.Squares,
		Logs: t.Logs + other.Logs, LogSquares: t.LogSquares + other.LogSquares,
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

// Plus returns the sum of two tallies.
func (t Tally) Plus(other Tally) Tally {
	t.Tries += other.Tries
	t.Seen += other.Seen
	t.Arrived += other.Arrived
	t.ArrivedFailed += other.ArrivedFailed
	t.Changed += other.Changed
	t.Failed += other.Failed
	for i := range t.Times {
		t.Times[i] = t.Times[i].plus(other.Times[i])
	}
	return t
}

// Possible says that a tally can be true.
func (t Tally) Possible() bool {
	timed := int64(0)
	for _, of := range t.Times {
		if !of.possible() {
			return false
		}
		timed += of.N
	}
	return 0 <= t.ArrivedFailed && t.ArrivedFailed <= t.Arrived && t.Arrived <= t.Seen && 0 <= t.Failed &&
		t.Failed <= t.Changed && t.Changed <= t.Seen && timed <= t.Changed && t.Seen <= t.Tries && t.Tries < most
}

const (
	// Enough is how many tries of the canary's, and of the others', a verdict needs that it is good; and of how many
	// objects, or of half of those that the members have. Of so many objects of a build that fails with 2 % of all, two or
	// more fail in 98 of 100 cases.
	Enough = 300
	// few is how many objects that changed a verdict needs, that it takes longer and that it does not.
	few = 30
	// worse is by how much the part of objects that fail must be larger to matter, slower by which factor tries must take
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
// Two parts are compared: of the objects that keep failing now, and of those that changed and failed. The former
// shows a build that fails for certain objects, however often the others are reconciled, and the latter one that fails
// now and then for any. They are compared by the conditional test of two Poisson rates (Przyborowski and Wilenski,
// 1940): of all failures, the canary has as many by chance as a binomial distribution says. Means of how long tries
// take, and of their logarithms, are compared by Welch's statistic (1947), stratified. All of these are tests of
// figures that do not depend on each other, which is why each object counts once.
//
// Objects that failed when a handover brought them are compared with those of the others whose last reconcile failed. A
// canary is suspected for them alone: a first reconcile may fail more often than others do, with any build.
func Compare(canary, others Side) Verdict {
	c := compare(&canary.Times, &others.Times)
	v := Verdict{Text: texts(canary, others, c)}
	chance := math.Min(
		chanceOf(canary.Failing, canary.Objects, others.Failing, others.Objects),
		chanceOf(canary.Failed, canary.Changed, others.Failed, others.Changed))
	arrived := chanceOf(canary.ArrivedFailed, canary.Arrived, others.Ailing, others.Objects)
	by := c.by
	if c.n < few {
		by = math.Min(by, suspectBy)
	}
	switch {
	case chance < sure:
		v.Bad, v.Text = true, "it fails more often: "+v.Text
	case by > sureBy:
		v.Bad, v.Text = true, "it takes longer: "+v.Text
	case 0 < canary.Objects && canary.Objects < few:
		v.Text = fmt.Sprintf("the canary has %d objects, and a verdict needs %d: give it a larger share, or promote it "+
			"yourself: %s", canary.Objects, few, v.Text)
	case canary.Tries < Enough || others.Tries < Enough:
		v.Text = fmt.Sprintf("fewer than %d reconciles: %s", Enough, v.Text)
	case canary.Seen < canary.enough() || others.Seen < others.enough():
		v.Text = fmt.Sprintf("reconciles of %d objects, and %d of others, where a verdict needs %d and %d: %s", canary.Seen,
			others.Seen, canary.enough(), others.enough(), v.Text)
	case c.n < few:
		v.Text = fmt.Sprintf("fewer than %d objects that changed can be compared: %s", few, v.Text)
	case math.Min(chance, arrived) < suspect || by > suspectBy:
		v.Text = "it may be worse: " + v.Text
	default:
		v.Good = true
	}
	return v
}

// enough is of how many objects a verdict needs tries.
func (s Side) enough() int64 {
	if s.Objects == 0 {
		return Enough
	}
	return min(Enough, (s.Objects+1)/2)
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

// texts are how people read two sides. What neither of them has is left out.
func texts(canary, others Side, c compared) string {
	text := func(s Side, arrived string, mean float64) string {
		all := "no reconciles"
		if s.Tries > 0 {
			all = fmt.Sprintf("%d reconciles", s.Tries)
		}
		if s.Changed > 0 {
			all += fmt.Sprintf(", %d of %d changed objects failed (%.2f %%)", s.Failed, s.Changed, 100*part(s.Failed, s.Changed))
		}
		if c.n > 0 {
			all += fmt.Sprintf(", mean %v", rounded(time.Duration(mean*float64(time.Second))))
		}
		if canary.ArrivedFailed > 0 {
			all += arrived
		}
		if canary.Failing > 0 || others.Failing > 0 {
			all += fmt.Sprintf(", %d of %d objects keep failing", s.Failing, s.Objects)
		}
		return all
	}
	came := fmt.Sprintf(", %d of %d objects failed when they came", canary.ArrivedFailed, canary.Arrived)
	fail := fmt.Sprintf(", %d of %d objects fail now", others.Ailing, others.Objects)
	return text(canary, came, c.took) + "; others: " + text(others, fail, c.other)
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

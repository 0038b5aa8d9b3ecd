// Package trial compares the reconciles of a canary's members with the other members' (rule R22).
package trial

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Side is the report of one side of the comparison: the canary's members, or the others.
type Side struct {
	// Tally counts one step of the canary.
	Tally
	// Objects is how many objects the members have now. The last reconcile of Ailing of them failed. Failing of them keep
	// failing, or hang.
	Objects, Ailing, Failing int64
}

// Plus returns the sum of two sides.
func (s Side) Plus(other Side) Side {
	return Side{
		s.Tally.Plus(other.Tally), s.Objects + other.Objects, s.Ailing + other.Ailing, s.Failing + other.Failing,
	}
}

// Possible reports whether the figures of a side are plausible.
func (s Side) Possible() bool {
	for _, n := range []int64{s.Objects, s.Ailing, s.Failing} {
		if n < 0 || n >= most {
			return false
		}
	}
	return s.Tally.Possible()
}

// most is above any plausible count.
const most = 1 << 50

// Tally counts the results of tries. A try is a reconcile of an object whose last reconcile did not fail. All fields
// except Tries count each object once, since a thousand tries of one object are no more evidence about a build than
// one. The zero value has no tries. Objects counts one.
type Tally struct {
	// Tries is the number of tries, Seen the number of their objects.
	Tries, Seen int64
	// Arrived objects were reconciled after a handover brought them, and ArrivedFailed of them failed then. They all come
	// at once, and objects that fail with every build fail here once more.
	Arrived, ArrivedFailed int64
	// Changed objects were reconciled because of a change, and Failed of them failed at least once.
	Changed, Failed int64
	// Times are the durations of the first such reconcile of each Changed object, by how many tries ran beside it on the
	// member: none, up to 2, up to 6, more.
	Times [Sorts]Times
}

// Sorts is the number of groups of tries, by how many others run beside them.
const Sorts = 4

// Times sums up durations of tries: their sum, in seconds, and the sum of their squares, and the same for their natural
// logarithms. The mean of the logarithms is not distorted by a few long tries.
type Times struct {
	N                                  int64
	Seconds, Squares, Logs, LogSquares float64
}

// shortest is the shortest duration of a try that is counted, so that it has a logarithm.
const shortest = time.Microsecond

// arrive counts another object that a handover brought.
func (t *Tally) arrive(failed bool) {
	t.Arrived++
	if failed {
		t.ArrivedFailed++
	}
}

// Add counts another object that changed, with the duration of its try, how many other tries ran beside it, and whether
// it failed.
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

// Possible reports whether the figures of a tally are plausible.
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
	// Enough is how many tries, both of the canary and of the others, a good verdict needs, and of how many objects, or of
	// half of the objects that the members have. If a build fails for 2 % of all objects, two or more of so many objects
	// fail in 98 of 100 cases.
	Enough = 300
	// few is how many changed objects a verdict about durations needs.
	few = 30
	// worse is by how much the fraction of failing objects must be larger to matter. slower is by which factor tries must
	// take longer, and longer by how much at least.
	worse, slower, longer = 0.005, 2, 5 * time.Millisecond
	// sure is the probability of chance below which the canary is bad, and sureBy the same in standard deviations. They
	// are strict, since the canary is judged many times. From suspect and suspectBy on, it is not good.
	sure, suspect     = 1e-4, 0.05
	sureBy, suspectBy = 4, 2
)

// Verdict is the result of a comparison.
type Verdict struct {
	// Bad is set if the canary fails more often or takes longer. Good is set if there are enough tries and nothing speaks
	// against the canary. Neither is set if it is too early to tell.
	Bad, Good bool
	// Text contains the compared figures in one line.
	Text string
}

// Compare compares the canary's tries with the others' in the same step.
//
// It compares two fractions: of the objects that keep failing now, and of those that changed and failed. The former
// shows a build that fails for certain objects, however often the others are reconciled, and the latter one that fails
// now and then for any. The test is the conditional test of two Poisson rates (Przyborowski and Wilenski, 1940): by
// chance, the canary's part of all failures has a binomial distribution. Mean durations, and means of their logarithms,
// are compared by Welch's statistic (1947), stratified. All of these tests need independent figures, which is why each
// object counts once.
//
// Objects that failed when a handover brought them are compared with the other side's objects whose last reconcile
// failed. That alone only makes the canary suspect: a first reconcile may fail more often than others, with any build.
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

// enough is how many objects with tries a good verdict needs.
func (s Side) enough() int64 {
	if s.Objects == 0 {
		return Enough
	}
	return min(Enough, (s.Objects+1)/2)
}

// chanceOf returns the probability that k or more of n objects fail by chance if l of m others do, or 1 if the
// difference does not matter.
func chanceOf(k, n, l, m int64) float64 {
	k, l = min(k, n), min(l, m)
	if part(k, n)-part(l, m) <= worse {
		return 1
	}
	return tail(k+l, k, part(n, n+m))
}

// compared is the result of comparing durations.
type compared struct {
	// n is how many of the canary's tries could be compared with others'. took and other are the means in seconds.
	n           int64
	took, other float64
	// by is by how many standard deviations the canary's tries take longer, or 0 if the difference does not matter.
	by float64
}

// compare compares durations group by group, and weights the differences by the number of tries on both sides: with any
// build, a try takes longer beside many others (stratification, as by Mantel and Haenszel, 1959).
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

// tiny replaces a variance of 0.
const tiny = 1e-24

func part(k, n int64) float64 { return float64(k) / float64(max(n, 1)) }

// texts formats two sides for people, without the figures that neither has.
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

// rounded rounds d for display.
func rounded(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}

// longerBy returns the statistic if its means differ enough to matter, and 0 otherwise.
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

// tail returns the probability of k or more successes in n trials with probability p each. p must be above 0 if k is.
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
		return 1 // below the mean, where the exact figure does not matter
	}
	for i := k; i <= n; i++ {
		term := math.Exp(logs(n) - logs(i) - logs(n-i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		sum += term
		if term < sum*1e-9 {
			break // above the mean, each term is smaller than the one before
		}
	}
	return math.Min(sum, 1)
}

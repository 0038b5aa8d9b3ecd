package trial_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/trial"
)

// tries is a tally of n tries of which failed ones fail, and that take about so long.
func tries(chance *rand.Rand, n int, failed float64, took time.Duration) (t trial.Side) {
	for range n {
		t.Add(time.Duration(float64(took)*math.Exp(chance.NormFloat64())), 0, chance.Float64() < failed)
	}
	return t
}

// verdicts counts what comparisons of drawn tallies come to.
func verdicts(canary, others func(*rand.Rand) trial.Side) (bad, good int) {
	for seed := range uint64(1000) {
		chance := rand.New(rand.NewPCG(seed, 0)) // must be repeatable
		v := trial.Compare(canary(chance), others(chance))
		if v.Bad {
			bad++
		}
		if v.Good {
			good++
		}
	}
	return bad, good
}

func TestCompare(t *testing.T) {
	of := func(n int, failed float64, took time.Duration) func(*rand.Rand) trial.Side {
		return func(chance *rand.Rand) trial.Side { return tries(chance, n, failed, took) }
	}
	ms := time.Millisecond
	for _, test := range []struct {
		name                string
		canary, others      func(*rand.Rand) trial.Side
		leastBad, mostBad   int // of 1,000
		leastGood, mostGood int
	}{
		{"alike", of(350, 0.001, 20*ms), of(5000, 0.001, 20*ms), 0, 1, 930, 1000},
		{"alike, and all fail often", of(350, 0.2, 20*ms), of(5000, 0.2, 20*ms), 0, 1, 900, 1000},
		{"2 % fail", of(500, 0.02, 20*ms), of(8000, 0, 20*ms), 940, 1000, 0, 40},
		{"2 % fail, of few", of(60, 0.02, 20*ms), of(1000, 0, 20*ms), 0, 200, 0, 0},
		{"all fail", of(20, 1, 20*ms), of(400, 0, 20*ms), 1000, 1000, 0, 0},
		{"three times as long", of(350, 0, 60*ms), of(5000, 0, 20*ms), 1000, 1000, 0, 0},
		{"three times as long, of few", of(40, 0, 60*ms), of(800, 0, 20*ms), 800, 1000, 0, 0},
		{"a third as long", of(350, 0, 20*ms), of(5000, 0, 60*ms), 0, 0, 950, 1000},
		{"three times as long, of very short ones", of(350, 0, 300*time.Microsecond), of(5000, 0, 100*time.Microsecond), 0, 0, 950, 1000},
		{"too few", of(299, 0, 20*ms), of(5000, 0, 20*ms), 0, 1, 0, 0},
		{"too few others", of(500, 0, 20*ms), of(299, 0, 20*ms), 0, 1, 0, 0},
		{"none", of(0, 0, ms), of(0, 0, ms), 0, 0, 0, 0},
	} {
		bad, good := verdicts(test.canary, test.others)
		if bad < test.leastBad || bad > test.mostBad || good < test.leastGood || good > test.mostGood {
			t.Errorf("%s: %d of 1000 bad, want %d to %d; %d good, want %d to %d", test.name, bad, test.leastBad, test.mostBad,
				good, test.leastGood, test.mostGood)
		}
	}
}

// TestArrivalsAreNotTimed: what a handover brings says nothing of how long reconciles take.
func TestArrivalsAreNotTimed(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 0)) // must be repeatable
	others := tries(chance, 5000, 0, 20*time.Millisecond)
	var came trial.Objects[int]
	for key := range 500 {
		came.Try(key, true, time.Minute, 0, false)
	}
	canary := trial.Side{Tally: came.Tally}
	if v := trial.Compare(canary, others); v.Good || v.Bad || !strings.Contains(v.Text, "can be compared: 500 reconciles; others") {
		t.Errorf("without timed ones: %+v", v)
	}
	if v := trial.Compare(canary.Plus(tries(chance, 30, 0, 20*time.Millisecond)), others); !v.Good {
		t.Errorf("with 30: %+v", v)
	}
}

// objects has n objects of which each changes once, and bad of these fail.
func objects(t *trial.Objects[int], n, bad int) {
	for key := range n {
		t.Try(key, false, 20*time.Millisecond, 0, key < bad)
	}
}

// TestOneObjectCountsOnce: whatever one object does again and again, it says no more than one object.
func TestOneObjectCountsOnce(t *testing.T) {
	flaps := func(of *trial.Objects[int]) { of.Try(-1, false, 20*time.Millisecond, 0, true) }
	slow := func(of *trial.Objects[int]) { of.Try(-1, false, 2*time.Second, 0, false) }
	nothing := func(*trial.Objects[int]) {}
	for _, test := range []struct {
		name           string
		failing        int // of 400 objects of the canary
		canary, others func(*trial.Objects[int])
		good           bool
	}{
		{"2.5 % fail", 10, nothing, nothing, false},
		{"one of the others' flaps", 10, nothing, flaps, false},
		{"one of a good build's flaps", 0, flaps, nothing, true},
		{"one of a good build's takes long", 0, slow, nothing, true},
	} {
		var canary, others trial.Objects[int]
		objects(&canary, 400, test.failing)
		objects(&others, 8000, 0)
		for range 240 {
			test.canary(&canary)
			test.others(&others)
		}
		v := trial.Compare(trial.Side{Tally: canary.Tally, Objects: 400}, trial.Side{Tally: others.Tally, Objects: 8000})
		if v.Good != test.good || v.Bad == test.good {
			t.Errorf("%s: %+v", test.name, v)
		}
	}
	var all trial.Objects[int]
	all.Try(1, true, time.Second, 0, true)
	all.Try(1, false, time.Second, 0, false)
	all.Try(1, false, time.Minute, 0, true)
	all.Try(1, false, time.Minute, 0, true)
	all.Try(1, true, time.Minute, 0, true)
	want := trial.Tally{Tries: 5, Seen: 1, Arrived: 1, ArrivedFailed: 1, Changed: 1, Failed: 1}
	want.Times[0] = trial.Times{N: 1, Seconds: 1, Squares: 1}
	if all.Tally != want {
		t.Errorf("one object: %+v, want %+v", all.Tally, want)
	}
	objects(&all, trial.MostObjects+3, 2)
	if got := all.Tally; got.Seen != trial.MostObjects || got.Changed != trial.MostObjects || got.Failed != 2 {
		t.Errorf("with more objects than are told apart: %+v", got)
	}
}

// TestFewObjects: many tries of few objects are no verdict, and a share that is too small for one says so.
func TestFewObjects(t *testing.T) {
	var others trial.Objects[int]
	objects(&others, 5000, 0)
	rest := trial.Side{Tally: others.Tally, Objects: 5000}
	for _, test := range []struct {
		objects int64 // of the canary
		tried   int
		good    bool
		text    string
	}{
		{1000, 299, false, "reconciles of 299 objects, and 5000 of others, where a verdict needs 300 and 300: "},
		{1000, 300, true, ""},
		{250, 124, false, "reconciles of 124 objects, and 5000 of others, where a verdict needs 125 and 300: "},
		{250, 125, true, ""},
		{25, 25, false, "the canary has 25 objects, and a verdict needs 30: give it a larger share, or promote it yourself: "},
	} {
		var canary trial.Objects[int]
		for range 20 {
			objects(&canary, test.tried, 0)
		}
		v := trial.Compare(trial.Side{Tally: canary.Tally, Objects: test.objects}, rest)
		if v.Good != test.good || v.Bad || !strings.HasPrefix(v.Text, test.text) {
			t.Errorf("%d of %d objects: %+v", test.tried, test.objects, v)
		}
	}
}

// TestFailuresOfArrivals: objects that fail when a handover brings them, and not again, are suspicious, and no more.
func TestFailuresOfArrivals(t *testing.T) {
	var canary, others trial.Objects[int]
	for key := range 300 {
		canary.Try(key, true, time.Second, 0, key < 30)
	}
	objects(&canary, 30, 0)
	objects(&others, 400, 1)
	of, rest := trial.Side{Tally: canary.Tally, Objects: 300}, trial.Side{Tally: others.Tally, Objects: 5000}
	v := trial.Compare(of, rest)
	if v.Good || v.Bad || !strings.Contains(v.Text, "30 of 300 objects failed when they came; others: 400 reconciles, 1 of 400 "+
		"changed objects failed (0.25 %), mean 20ms, 0 of 5000 objects fail now") {
		t.Errorf("verdict %+v", v)
	}
	rest.Ailing = 450 // it is the objects
	if v := trial.Compare(of, rest); !v.Good {
		t.Errorf("where as many fail elsewhere: %+v", v)
	}
}

// TestCertainObjectsFail: few objects keep failing, and all others are reconciled so often that few of the tries do.
func TestCertainObjectsFail(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 0)) // must be repeatable
	others, canary := tries(chance, 20000, 0, 20*time.Millisecond), tries(chance, 2000, 0, 20*time.Millisecond)
	others.Objects, others.Failing, canary.Objects, canary.Failing, canary.Failed = 5000, 2, 250, 5, 5
	v := trial.Compare(canary, others)
	if !v.Bad || !strings.Contains(v.Text, "5 of 250 objects keep failing; others") {
		t.Errorf("verdict %+v", v)
	}
	others.Failing = 100 // it is the objects
	if v := trial.Compare(canary, others); !v.Good {
		t.Errorf("where as many fail elsewhere: %+v", v)
	}
	if v := trial.Compare(trial.Side{Failing: 3, Tally: canary.Tally}, others); v.Bad {
		t.Errorf("without objects: %+v", v)
	}
	for _, impossible := range []trial.Side{{Objects: -1}, {Ailing: -1}, {Failing: -1}, {Tally: trial.Tally{Tries: -1}}} {
		if impossible.Possible() {
			t.Errorf("%+v is possible", impossible)
		}
	}
}

// TestOneOfAHundredHangs: the mean shows what the logarithms do not.
func TestOneOfAHundredHangs(t *testing.T) {
	chance := rand.New(rand.NewPCG(1, 0)) // must be repeatable
	others, canary := tries(chance, 20000, 0, 20*time.Millisecond), tries(chance, 2000, 0, 20*time.Millisecond)
	for range 40 {
		canary.Add(30*time.Second, 0, false)
	}
	if v := trial.Compare(canary, others); !v.Bad || !strings.Contains(v.Text, "takes longer") {
		t.Errorf("verdict %+v", v)
	}
}

// TestBesideOthers: what is worked on beside many takes longer with any build, and is compared with the same alone.
func TestBesideOthers(t *testing.T) {
	draw := func(seed uint64, n, beside int, took time.Duration) (s trial.Side) {
		chance := rand.New(rand.NewPCG(seed, 0)) // must be repeatable
		for range n {
			s.Add(time.Duration(float64(took)*math.Exp(chance.NormFloat64()/2)), beside, false)
		}
		return s
	}
	const short, long = 10 * time.Millisecond, 40 * time.Millisecond
	others := draw(1, 3000, 0, short).Plus(draw(2, 100, 7, long))
	if v := trial.Compare(draw(3, 60, 0, short).Plus(draw(4, 400, 9, long)), others); !v.Good {
		t.Errorf("it has more to do at a time: %+v", v)
	}
	if v := trial.Compare(draw(3, 60, 0, 3*short).Plus(draw(4, 400, 7, 3*long)), others); !v.Bad {
		t.Errorf("and takes three times as long: %+v", v)
	}
	if v := trial.Compare(draw(3, 500, 2, 3*short), draw(1, 3000, 0, short)); v.Good || v.Bad {
		t.Errorf("nothing is alike: %+v", v)
	}
}

func timed(of trial.Times) trial.Tally { return trial.Tally{Times: [trial.Sorts]trial.Times{of}} }

func TestText(t *testing.T) {
	var canary, others trial.Side
	for i := range 200 {
		canary.Add(10*time.Millisecond, 0, i < 20)
		others.Add(time.Millisecond, 0, false)
	}
	want := "it fails more often: 200 reconciles, 20 of 200 changed objects failed (10.00 %), mean 10ms; others: 200 " +
		"reconciles, 0 of 200 changed objects failed (0.00 %), mean 1ms"
	if v := trial.Compare(canary, others); v.Text != want {
		t.Errorf("text %q, want %q", v.Text, want)
	}
	want = "fewer than 300 reconciles: no reconciles; others: 200 reconciles, 0 of 200 changed objects failed (0.00 %)"
	if v := trial.Compare(trial.Side{}, others); v.Text != want {
		t.Errorf("text %q", v.Text)
	}
	// All objects failed before the step began, so that what followed were retries.
	want = "it fails more often: no reconciles, 76 of 76 objects keep failing; others: no reconciles, 0 of 267 objects keep failing"
	if v := trial.Compare(trial.Side{Objects: 76, Failing: 76}, trial.Side{Objects: 267}); !v.Bad || v.Text != want {
		t.Errorf("verdict %+v", v)
	}
	for _, impossible := range []trial.Tally{
		{Tries: -1}, {Tries: 3, Changed: 1, Failed: 2}, {Failed: -1}, {Changed: 1}, {Arrived: 1}, {ArrivedFailed: -1},
		{Tries: 3, Arrived: 1, ArrivedFailed: 2}, timed(trial.Times{N: 1}), timed(trial.Times{N: -1}),
		timed(trial.Times{Seconds: math.NaN()}), timed(trial.Times{Squares: math.Inf(1)}), timed(trial.Times{LogSquares: -1}),
		{Tries: math.MaxInt64},
	} {
		if impossible.Possible() {
			t.Errorf("%+v is possible", impossible)
		}
	}
	if !canary.Possible() {
		t.Error("a tally is impossible")
	}
}

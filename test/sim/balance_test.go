package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// shape is what slots cost over a day, in workers.
type shape func(s slot.Slot, at time.Duration) float64

// zipf is the load of the n-th heaviest of 256 slots by Zipf's law (s = 1), of so many workers in all. Which slots are
// heavy is a permutation's.
func zipf(all float64, seed uint64) shape {
	order := rand.New(rand.NewPCG(seed, 1)).Perm(256)
	sum := 0.0
	for i := range 256 {
		sum += 1 / float64(i+1)
	}
	return func(s slot.Slot, _ time.Duration) float64 { return all / sum / float64(order[s]+1) }
}

func constant(all float64) shape {
	return func(slot.Slot, time.Duration) float64 { return all / 256 }
}

// diurnal has the load of a quarter of the slots follow the sun, each quarter six hours after the one before.
func diurnal(all float64) shape {
	return func(s slot.Slot, at time.Duration) float64 {
		phase := 2 * math.Pi * (at.Hours()/24 + float64(s/64)/4)
		return all / 256 * (1 + 0.8*math.Sin(phase))
	}
}

// bursty has each slot be busy for a minute in twenty, at times of its own.
func bursty(all float64) shape {
	return func(s slot.Slot, at time.Duration) float64 {
		minute := uint64(at / time.Minute)
		if rand.New(rand.NewPCG(minute, uint64(s))).IntN(20) == 0 {
			return all / 256 * 20
		}
		return 0
	}
}

// moving has 16 hot slots, others every four hours.
func moving(all float64) shape {
	return func(s slot.Slot, at time.Duration) float64 {
		if first := int(at/(4*time.Hour)) * 37 % 256; (int(s)-first+256)%256 < 16 {
			return all / 20
		}
		return all / 5 / 240
	}
}

// meter is what a gate measures of a load: its average over two minutes, of reconciles that take so long.
type meter struct {
	shape   shape
	takes   time.Duration
	slow    map[string]float64 // by pod: how many times longer
	samples map[string]*sample
	rng     *rand.Rand
}

type sample struct {
	at    time.Duration
	noise float64
}

// of implements Options.Load. The average of the number of busy workers of a queue with Poisson arrivals and service
// times of exponential length varies by load × takes / time constant, and forgets as the average does.
func (m *meter) of(pod string, s slot.Slot, at time.Duration) int64 {
	load := m.shape(s, at)
	if by := m.slow[pod]; by > 0 {
		load *= by
	}
	key := fmt.Sprint(pod, s)
	p := m.samples[key]
	if p == nil {
		p = &sample{noise: m.rng.NormFloat64()}
		m.samples[key] = p
	}
	keep := math.Exp(-(at - p.at).Seconds() / 120)
	p.noise, p.at = p.noise*keep+m.rng.NormFloat64()*math.Sqrt(1-keep*keep), at
	deviation := math.Sqrt(load * m.takes.Seconds() / 120)
	return int64(1000 * max(0, load+deviation*p.noise))
}

// day is what a rota of four goes through.
type day struct {
	name  string
	shape shape
	takes time.Duration
	slow  map[string]float64 // by pod: how many times longer reconciles take
	// garbled: of twelve reports one is missing, one old, one without loads, and three are wrong.
	garbled bool
	// replaced: after two hours the members leave, one after the other, and others join.
	replaced bool
	// The largest load to the mean one, at most: five minutes after the start, and in the mean after ten minutes. 0: any.
	soon, later float64
	// Moves, at most: in the first ten minutes, and in an hour after that.
	early, hourly int
}

// TestDays: loads are evened out, and slots do not move to and fro, over simulated days (rule R21). Shares by number
// are there at the start, and what they would be is in the log. With SLOW=1 it is a whole day.
func TestDays(t *testing.T) {
	hours := 8
	switch {
	case testing.Short():
		hours = 4
	case os.Getenv("SLOW") != "":
		hours = 24
	}
	half := map[string]float64{"p4": 2}
	for _, d := range []day{
		{name: "constant", shape: constant(12), takes: 100 * time.Millisecond, soon: 1.01, later: 1.01},
		{name: "constant, long reconciles", shape: constant(12), takes: 10 * time.Second, soon: 1.01, later: 1.01},
		{name: "constant, little", shape: constant(1), takes: time.Second, soon: 1.01, later: 1.01},
		{name: "Zipf", shape: zipf(12, 1), takes: time.Second, soon: 1.15, later: 1.1, early: 64, hourly: 1},
		{name: "Zipf, another", shape: zipf(12, 2), takes: time.Second, soon: 1.15, later: 1.1, early: 64, hourly: 1},
		{name: "Zipf, little", shape: zipf(2, 3), takes: time.Second, soon: 1.15, later: 1.1, early: 64, hourly: 1},
		{name: "one slow member", shape: constant(12), takes: time.Second, slow: half, soon: 1.15, later: 1.1, early: 64, hourly: 1},
		{name: "Zipf, one slow member", shape: zipf(12, 4), takes: time.Second, slow: half, soon: 1.15, later: 1.1, early: 64},
		{name: "diurnal", shape: diurnal(12), takes: time.Second, later: 1.2, early: 64, hourly: 10},
		{name: "bursty", shape: bursty(12), takes: time.Second, later: 1.7, hourly: 1},
		{name: "moving", shape: moving(12), takes: time.Second, later: 1.2, early: 64, hourly: 8},
		{name: "Zipf, members replaced", shape: zipf(12, 1), takes: time.Second, replaced: true, soon: 1.15, later: 1.15, early: 64, hourly: 250},
		{name: "Zipf, garbled", shape: zipf(12, 1), takes: time.Second, garbled: true, later: 1.5, early: 64, hourly: 30},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			d.live(t, hours)
		})
	}
}

// live goes through the day.
func (d day) live(t *testing.T, hours int) {
	m := &meter{shape: d.shape, takes: d.takes, slow: d.slow, samples: map[string]*sample{}, rng: rand.New(rand.NewPCG(7, 7))}
	w := New(Options{Slots: 256, Load: m.of, Tune: func(c *member.Config) { c.ByLoad = true }})
	if d.garbled {
		w.garbles = rand.New(rand.NewPCG(8, 8))
	}
	start := func(i int) *Node {
		pod := fmt.Sprintf("p%d", i)
		return w.Start(&Replica{Pod: pod, PodUID: "uid-" + pod, Container: "main", Build: "v1", Weight: 1})
	}
	first4 := []*Node{start(1), start(2), start(3), start(4)}
	w.Run(30 * time.Second)
	owners := map[slot.Slot]string{}
	_, first := d.look(w, owners)
	total, early, soon, later, worst, n := 0, 0, 0.0, 0.0, 0.0, 0.0
	for minute := 1; minute <= hours*60; minute++ {
		w.Run(time.Minute)
		if w.Failed() {
			t.Fatal(w.Violations()[0])
		}
		if d.replaced && minute >= 120 && minute < 160 && minute%10 == 0 { // each is the first planner at some time
			first4[(minute-120)/10].Leave()
			start(5 + (minute-120)/10)
			w.Run(30 * time.Second)
		}
		moves, ratio := d.look(w, owners)
		total += moves
		switch {
		case minute == 5:
			soon = ratio
		case minute <= 10:
			early = total
		default:
			later, worst, n = later+ratio, max(worst, ratio), n+1
		}
	}
	later, hourly := later/n, float64(total-early)/(n/60)
	t.Logf("%s: at first %.2f times the mean; after 5 minutes %.2f, later %.3f, at most %.2f; %d moves in ten minutes, "+
		"%.1f an hour later", d.name, first, soon, later, worst, early, hourly)
	if d.soon > 0 && soon > d.soon || d.later > 0 && later > d.later {
		t.Errorf("want at most %.2f after 5 minutes, and %.2f later", d.soon, d.later)
	}
	if early > d.early || hourly > float64(d.hourly) {
		t.Errorf("want at most %d moves, and %d an hour later", d.early, d.hourly)
	}
}

// look counts the slots that have another owner than at the last look, and returns the largest load to the mean one.
func (d day) look(w *World, owners map[slot.Slot]string) (moves int, ratio float64) {
	loads, all := map[string]float64{}, 0.0
	t := w.Objects.Table().Table
	for s := range slot.Slot(t.Slots) {
		owner := t.At(s).Owner
		if owners[s] != "" && owners[s] != owner {
			moves++
		}
		owners[s] = owner
		load := d.shape(s, w.Now())
		if by := d.slow[owner[:2]]; by > 0 {
			load *= by
		}
		loads[owner] += load
		all += load
	}
	for _, l := range loads {
		ratio = max(ratio, l*float64(len(t.Members))/all)
	}
	return moves, ratio
}

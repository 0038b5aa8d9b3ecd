package sim

import (
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/slot"
)

// What members report of their slots' loads (rule R21). The model has no reports but these.

// reporting is what a node reports.
type reporting struct {
	serial uint64
	at     time.Duration // of the last report
}

// ReadLoads answers with what live members report, or with what a life makes of it.
func (r requests) ReadLoads(answer func([]planner.LoadReport)) {
	w := r.n.w
	r.n.Link.send(request{
		name: ReadLoads,
		effect: func(bool) func() {
			var reports []planner.LoadReport
			for _, n := range w.Live() {
				if n.Stopped == nil {
					reports = append(reports, w.garble(n.loadReport())...)
				}
			}
			if w.opts.Load != nil {
				w.Coverage.Rules[21]++
			}
			return func() { answer(reports) }
		},
		fail: func(member.Outcome) { answer(nil) },
	})
}

// loadReport returns the node's last report. A process that stands still reports nothing new.
func (n *Node) loadReport() planner.LoadReport {
	if p := &n.reported; !n.Paused && !n.Mute && (p.serial == 0 || n.w.now-p.at >= n.cfg.LeaseDuration/2) {
		p.serial, p.at = p.serial+1, n.w.now
	}
	out := planner.LoadReport{ID: n.ID, Serial: n.reported.serial, ByLoad: n.cfg.ByLoad, Open: n.gate.OpenSet()}
	out.Trial = n.trial()
	if n.w.opts.Load == nil {
		return out
	}
	for _, s := range out.Open.Slots() {
		if int(s) < int(n.w.opts.Slots) {
			out.Loads = append(out.Loads, planner.Busy{
				Slots: slot.Range{First: s, Last: s}, Workers: n.w.opts.Load(n.Replica.Pod, s, n.w.now),
			})
		}
	}
	return out
}

// drawLoads decides whether slots are planned by load: in one of four lives. They have a source of chance of their own,
// so that lives without them stay what they were. A slot's load is any, and changes now and then. In half of those
// lives some members plan by number for a while.
func (c *Chaos) drawLoads() {
	chance := rand.New(rand.NewPCG(c.opts.Seed, 7)) // must be repeatable
	if chance.IntN(4) > 0 {
		return
	}
	c.garbles = chance
	tune, mixed := c.opts.Tune, chance.IntN(2) == 0
	c.opts.Tune = func(cfg *member.Config) {
		cfg.ByLoad = !mixed || c.over || chance.IntN(4) > 0
		cfg.LoadPeriod = time.Second + time.Duration(chance.Int64N(int64(10*time.Second)))
		if tune != nil {
			tune(cfg)
		}
	}
	c.opts.Load = func(_ string, s slot.Slot, at time.Duration) int64 {
		of := rand.New(rand.NewPCG(c.opts.Seed+uint64(at/(30*time.Second)), uint64(s))) // must be repeatable
		return of.Int64N(1 + of.Int64N(1+of.Int64N(3000)))
	}
}

// garble returns what a planner hears of a report: nothing, an old one, or nonsense, now and then.
func (w *World) garble(r planner.LoadReport) []planner.LoadReport {
	if w.garbles == nil || w.over {
		return []planner.LoadReport{r}
	}
	switch w.garbles.IntN(12) {
	case 0:
		return nil
	case 1:
		r.Serial = max(r.Serial, 1) - 1
	case 2:
		for i := range r.Loads {
			r.Loads[i].Workers = w.garbles.Int64N(4*plan.MaxLoad) - plan.MaxLoad
		}
	case 3:
		last := slot.Slot(w.garbles.IntN(slot.MaxCount))
		r.Loads = append(r.Loads, planner.Busy{Slots: slot.Range{First: last / 2, Last: last}, Workers: plan.MaxLoad})
	case 4:
		r.Loads = nil
	case 5: // that could be true
		for i := range r.Loads {
			r.Loads[i].Workers = w.garbles.Int64N(1000)
		}
	}
	return []planner.LoadReport{r}
}

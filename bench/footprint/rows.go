package footprint

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/bench/meter"
)

// A part is a value as a fraction of the same value of a single member, and its deviation from 1/N. It is not Known
// without the result of a single member.
type part struct {
	Known    bool
	Part, By float64
}

// replicaRow is about the replicas of one role in one case.
type replicaRow struct {
	Form          string
	Role          string
	Members       int
	Cached        float64
	HasIdle       bool
	Idle          float64 // live heap
	Live, Most    float64
	Above         float64
	Memory        part
	StartPeak     float64
	WindowPeak    float64
	Watches       float64
	StartBytes    float64
	StartWrites   float64
	StartShare    part
	Bytes         float64 // for each change, above idle
	MostBytes     float64
	IdleBytes     float64 // per second
	Traffic       part
	CPU, MostCPU  float64 // in seconds for each change, above idle
	AllCPU        float64
	Server, Etcd  float64
	IdleCPU       float64 // in seconds per second
	IdleServer    float64
	Seconds       float64 // how long the load took
	ServerHeap    float64
	IdleHeap      float64
	ServerWatches int
	First         bool // row of its case: it shows what the servers did
}

func (r *Report) replicaRows() (rows []replicaRow) {
	for _, res := range r.sorted(Steady) {
		for i, role := range []string{roleMember, roleActive, roleStandby} {
			if len(res.values(role, liveHeap)) == 0 {
				continue
			}
			idle := r.find(Case{Idle, res.Form, res.Members})
			hasIdle := idle != nil
			if !hasIdle {
				idle = &Result{}
			}
			traffic, busy := r.perChange(res, role, windowBytes), r.perChange(res, role, windowCPU)
			row := replicaRow{
				Form: res.Form.Title(), Role: role, Members: res.Members, Cached: res.mean(role, cached),
				HasIdle: hasIdle, Idle: idle.mean(role, liveHeap),
				Live: res.mean(role, liveHeap), Most: res.greatest(role, liveHeap), Memory: r.part(res, role, liveHeap),
				StartPeak: res.greatest(role, startPeak), WindowPeak: res.greatest(role, windowPeak),
				Watches: res.mean(role, watches), StartBytes: res.mean(role, startBytes),
				StartWrites: res.mean(role, startWrites), StartShare: r.part(res, role, startBytes),
				Bytes: res.mean(role, traffic), MostBytes: res.greatest(role, traffic),
				IdleBytes: idle.mean(role, perSecond(windowBytes)),
				CPU:       res.mean(role, busy), MostCPU: res.greatest(role, busy), IdleCPU: idle.mean(role, perSecond(windowCPU)),
				Server: r.serverPerChange(res, serverCPU), Etcd: r.serverPerChange(res, etcdCPU),
				ServerHeap: float64(res.Quiet.Heap), IdleHeap: float64(idle.Quiet.Heap), ServerWatches: res.Quiet.Watches,
				Seconds: res.Window.Seconds, First: i < 2,
			}
			for _, each := range []string{roleMember, roleActive, roleStandby} {
				row.AllCPU += sum(res.values(each, r.perChange(res, each, windowCPU)))
			}
			if hasIdle {
				row.IdleServer = serverCPU(idle.Window) / idle.Window.Seconds
			}
			if one := r.find(Case{Steady, res.Form, 1}); one != nil && hasIdle && res.Members > 1 {
				p := row.Bytes / one.mean(role, r.perChange(one, role, windowBytes))
				row.Traffic = part{Known: r.find(Case{Idle, res.Form, 1}) != nil, Part: p, By: p*float64(res.Members) - 1}
			}
			row.Above, _ = r.above(res, role, liveHeap)
			rows = append(rows, row)
		}
	}
	return rows
}

func serverCPU(w Window) float64 { return w.ServerSeconds }
func etcdCPU(w Window) float64   { return w.EtcdSeconds }

func (r *Report) part(res *Result, role string, value func(*Replica) float64) part {
	if res.Form == Stock || res.Members == 1 {
		return part{}
	}
	p, ok := r.ofOne(res, role, value)
	return part{Known: ok, Part: p, By: p*float64(res.Members) - 1}
}

// joinRow is about one join.
type joinRow struct {
	Form                           string
	Seconds                        float64
	Moved, Received, Others        int // objects
	Lists, Watches, Gets, Writes   int // for sharded kinds, by all members
	Coordination                   int
	Bytes, OtherBytes              float64
	Server, Etcd                   float64
	Peak, OtherPeak, Live, Stayers float64
}

func (r *Report) joinRows() (rows []joinRow) {
	for _, res := range r.sorted(Join) {
		row := joinRow{
			Form: res.Form.Title(), Seconds: res.Window.Seconds, Moved: res.Moved,
			Peak: res.greatest(roleJoiner, windowPeak), OtherPeak: res.greatest(roleMember, windowPeak),
			Live: res.mean(roleJoiner, liveHeap), Stayers: res.mean(roleMember, liveHeap),
		}
		row.Server, row.Etcd = res.caused()
		for i := range res.Replicas {
			p := &res.Replicas[i]
			row.Lists += requests(p.Window.Requests, "list")
			row.Watches += requests(p.Window.Requests, "watch")
			row.Gets += requests(p.Window.Requests, "get")
			row.Writes += requests(p.Window.Requests, meter.Writing...)
			row.Coordination += coordination(p.Window.Requests)
			if p.Role == roleJoiner {
				row.Received += count(p.Window.Received)
				row.Bytes += float64(p.Window.Bytes)
			} else {
				row.Others += count(p.Window.Received)
				row.OtherBytes += float64(p.Window.Bytes)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// delayRow compares a delivery with leader election.
type delayRow struct {
	Form        string
	Stock, Rota Delay
}

func (d delayRow) P50() float64   { return d.Rota.P50 / d.Stock.P50 }
func (d delayRow) P99() float64   { return d.Rota.P99 / d.Stock.P99 }
func (d delayRow) Extra() float64 { return d.Rota.P50 - d.Stock.P50 }

func (r *Report) delayRows() (rows []delayRow) {
	for _, res := range r.sorted(Latency) {
		row := delayRow{Form: res.Form.Title()}
		for _, d := range res.Delays {
			if d.Form == Stock {
				row.Stock = d
			} else {
				row.Rota = d
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// sorted returns the results of a kind: leader election first, then the deliveries, each by the number of members.
func (r *Report) sorted(what What) (out []*Result) {
	for i := range r.Results {
		if r.Results[i].What == what {
			out = append(out, &r.Results[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *Result) int {
		return cmp.Or(cmp.Compare(a.Form.delivery(), b.Form.delivery()), cmp.Compare(a.Members, b.Members))
	})
	return out
}

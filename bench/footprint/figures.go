package footprint

import (
	"slices"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/meter"
)

// figures are computed from results: per replica of a role, and as the difference from an idle one.

// mean returns the mean of a value over the replicas with the role, 0 without any.
func (r *Result) mean(role string, value func(*Replica) float64) float64 {
	values := r.values(role, value)
	if len(values) == 0 {
		return 0
	}
	return sum(values) / float64(len(values))
}

// greatest returns the greatest value of the replicas with the role.
func (r *Result) greatest(role string, value func(*Replica) float64) float64 {
	values := r.values(role, value)
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values)
}

func (r *Result) values(role string, value func(*Replica) float64) (out []float64) {
	for i := range r.Replicas {
		if p := &r.Replicas[i]; p.Role == role || role == "" {
			out = append(out, value(p))
		}
	}
	return out
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// above returns how far a mean exceeds that of the idle replicas of the same form, number and role.
func (r *Report) above(res *Result, role string, value func(*Replica) float64) (float64, bool) {
	idle := r.find(Case{Idle, res.Form, res.Members})
	if idle == nil {
		return 0, false
	}
	return res.mean(role, value) - idle.mean(role, value), true
}

// ofOne returns above as a fraction of the value of a single member with the same delivery.
func (r *Report) ofOne(res *Result, role string, value func(*Replica) float64) (float64, bool) {
	one := r.find(Case{res.What, res.Form, 1})
	if one == nil {
		return 0, false
	}
	mine, ok := r.above(res, role, value)
	whole, okOne := r.above(one, role, value)
	if !ok || !okOne || whole <= 0 {
		return 0, false
	}
	return mine / whole, true
}

// The values in the tables.
func liveHeap(p *Replica) float64   { return float64(p.LiveHeap) }
func startPeak(p *Replica) float64  { return float64(p.Start.PeakHeap) }
func windowPeak(p *Replica) float64 { return float64(p.Window.PeakHeap) }
func startBytes(p *Replica) float64 { return float64(p.Start.Bytes) }
func windowCPU(p *Replica) float64  { return p.Window.CPUSeconds }
func watches(p *Replica) float64    { return float64(p.Watches) }

// cached is the number of cached objects of sharded kinds.
func cached(p *Replica) float64 { return float64(count(p.Cached)) }

func windowBytes(p *Replica) float64 { return float64(p.Window.Bytes) }

// perChange returns a value of the load per change of a Website, less what an idle replica costs in the same time. On a
// machine that is too slow for the rate, the number of changes is the same and they take longer.
func (r *Report) perChange(res *Result, role string, value func(*Replica) float64) func(*Replica) float64 {
	rate := 0.0
	if idle := r.find(Case{Idle, res.Form, res.Members}); idle != nil {
		rate = idle.mean(role, perSecond(value))
	}
	changes := r.Parameters.Rate * r.Parameters.WindowSeconds
	return func(p *Replica) float64 { return (value(p) - rate*p.Window.Seconds) / changes }
}

func perSecond(value func(*Replica) float64) func(*Replica) float64 {
	return func(p *Replica) float64 { return value(p) / p.Window.Seconds }
}

// serverPerChange is perChange for the API server and etcd.
func (r *Report) serverPerChange(res *Result, value func(Window) float64) float64 {
	v := value(res.Window)
	if idle := r.find(Case{Idle, res.Form, res.Members}); idle != nil {
		v -= value(idle.Window) / idle.Window.Seconds * res.Window.Seconds
	}
	return v / (r.Parameters.Rate * r.Parameters.WindowSeconds)
}

func count(by map[string]int) (n int) {
	for _, c := range by {
		n += c
	}
	return n
}

// requests counts the requests with one of the verbs for objects of sharded kinds.
func requests(by map[string]int, verbs ...string) (n int) {
	for what, c := range by {
		verb, resource := meter.Verb(what), meter.Resource(what)
		if _, ok := cluster.Sharded()[resource]; ok && slices.Contains(verbs, verb) {
			n += c
		}
	}
	return n
}

// coordination counts the requests for the table and the Leases.
func coordination(by map[string]int) (n int) {
	for what, c := range by {
		if r := meter.Resource(what); r == meter.Table || r == meter.Leases {
			n += c
		}
	}
	return n
}

// startWrites counts the writes of objects of sharded kinds before all was quiet. None of them was necessary.
func startWrites(p *Replica) float64 { return float64(requests(p.Start.Requests, meter.Writing...)) }

// caused returns the processor seconds of the API server and etcd in a join, less those of an equally long time before.
func (r *Result) caused() (server, etcd float64) {
	if r.Base == nil || r.Base.Seconds == 0 {
		return r.Window.ServerSeconds, r.Window.EtcdSeconds
	}
	longer := r.Window.Seconds / r.Base.Seconds
	return r.Window.ServerSeconds - r.Base.ServerSeconds*longer, r.Window.EtcdSeconds - r.Base.EtcdSeconds*longer
}

package footprint

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/meter"
	"github.com/rota-dev/rota/ctrlrt"
)

// reading is a replica's report of itself. Counts begin with the process.
type reading struct {
	meter.Counts
	Reconciles int64          `json:"reconciles"`
	Received   map[string]int `json:"received"` // objects of sharded kinds, in lists and events
	// Working says that a stock replica is the leader. Members, Open, Coming, Going and Unowned are a member's Status,
	// the last four in slots. Settled says that the member owns slots and all of them are open.
	Working bool `json:"working"`
	Members int  `json:"members"`
	Open    int  `json:"open"`
	Moving  int  `json:"moving"`
	Settled bool `json:"settled"`
}

// resident is what remains in a replica's memory after a garbage collection.
type resident struct {
	meter.Resident
	Cached map[string]int `json:"cached"` // objects by kind
}

// probe answers the questions about a replica.
type probe struct {
	meter      *meter.Meter
	reconciles *reconciles
	manager    manager.Manager
	rota       *rota.Rota // nil: Stock
}

// The questions.
const (
	askReading  = "reading"
	askResident = "resident"
	askSeen     = "seen"
	askReset    = "reset" // reset the peak of the heap
)

func (p *probe) answer(ctx context.Context, question string) any {
	switch question {
	case askReading:
		return p.reading()
	case askResident:
		return p.resident(ctx)
	case askSeen:
		return p.reconciles.seen()
	case askReset:
		p.meter.Reset()
	}
	return struct{}{}
}

func (p *probe) reading() reading {
	r := reading{
		Counts: p.meter.Counts(), Reconciles: p.reconciles.count.Load(), Received: map[string]int{},
	}
	if p.rota == nil {
		r.Working = p.leads()
		return r
	}
	s := p.rota.Status()
	r.Working, r.Members, r.Open = true, s.Members, s.Open.Len()
	r.Moving = s.Coming.Len() + s.Going.Len() + s.Unowned.Len()
	r.Settled = r.Open > 0 && r.Open == s.Owned.Len() && r.Moving == 0
	for kind, traffic := range s.Traffic {
		plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
		r.Received[plural.Resource] += int(traffic.Received) // far below the limit
	}
	return r
}

// leads says whether a stock replica is the leader.
func (p *probe) leads() bool {
	select {
	case <-p.manager.Elected():
		return true
	default:
		return false
	}
}

func (p *probe) resident(ctx context.Context) resident {
	cached := p.cached(ctx)
	return resident{Resident: meter.Collect(), Cached: cached}
}

// cached counts the objects in the caches.
func (p *probe) cached(ctx context.Context) map[string]int {
	out := map[string]int{}
	if p.rota == nil && !p.leads() {
		return out // a list would start informers that a standby does not have
	}
	for kind, list := range cluster.Sharded() {
		if err := p.manager.GetCache().List(ctx, list, client.UnsafeDisableDeepCopy, ctrlrt.Share); err == nil {
			out[kind] = meta.LenList(list)
		}
	}
	return out
}

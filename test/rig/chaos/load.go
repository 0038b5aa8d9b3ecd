package chaos

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// load changes Websites: the first one half of the time. It only updates that one; of the rest, it updates most,
// recreates some and replaces others.
type load struct{ *rig.Load }

func newLoad(c *cluster, seed uint64) load {
	return load{rig.NewLoad(c.client, sitesNamespace, seed, func(s *rig.Site) webv1.WebsiteSpec {
		return webv1.WebsiteSpec{Title: s.Name, Content: "edition " + strconv.Itoa(s.Edition)}
	})}
}

// run does rate things per second until ctx ends, and ends what it began in later.
func (l load) run(ctx, later context.Context, rate float64) {
	l.Tick(ctx, func() time.Duration { return time.Duration(float64(time.Second) / rate) }, func() {
		var do func(context.Context, *rig.Site) error
		l.Start(later, func(random *rand.Rand, sites []*rig.Site) *rig.Site {
			do = l.Update
			i := 0
			if random.IntN(2) == 0 {
				i = random.IntN(len(sites))
			}
			switch choice := random.IntN(10); {
			case i == 0 || choice < 6:
			case choice < 8:
				do = l.Recreate
			default:
				do = l.Replace
			}
			return sites[i]
		}, func(ctx context.Context, s *rig.Site) error { return do(ctx, s) })
	})
}

// hot returns the Website that has half of the load.
func (l load) hot() judge.Site { return l.Sites()[0] }

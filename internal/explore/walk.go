package explore

import "math/rand/v2"

// walk is the length of a random walk.
const walkLength = 400

// Walk takes n random walks from the beginning, for what lies deeper than the search came. It does not count as states.
func (s *Search) Walk(n int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	var acts []act
	for range n {
		st := s.states[0]
		way := make([]act, 0, walkLength)
		for range walkLength {
			w := s.x.look(st)
			acts = w.enabled(acts)
			a := acts[rng.IntN(len(acts))]
			if rare := a.kind >= start && a.kind != resume && a.kind != unlag; rare && rng.IntN(4) > 0 {
				continue
			}
			v := s.x.look(st)
			v.do(a)
			if v.sent > 0 && w.may(lose) && rng.IntN(8) == 0 {
				a.lose = uint8(1 + rng.IntN(v.sent))
				v = s.x.look(st)
				v.do(a)
			}
			s.Steps++
			way = append(way, a)
			if len(v.violations) > 0 {
				s.Found = &Finding{Violation: v.violations[0], way: way}
				return
			}
			st = v.pack()
		}
	}
}

package explore

// Settle continues every state known fairly and without faults, until all is well. It returns what is not, and in which
// state, or nothing. It asks for a search that came to a fixpoint, or else goes on from there (sampled, if every is above 1).
func (s *Search) Settle(every int) (checked int, f *Finding) {
	const (
		unknown uint8 = iota
		onWay
		well
	)
	marks := make(map[state]uint8, len(s.states)/every)
	var acts []act
	var way []state
	for i := 0; i < len(s.states); i += every {
		st := s.states[i]
		way = way[:0]
		checked++
		for marks[st] == unknown {
			marks[st] = onWay
			way = append(way, st)
			w := s.x.look(st)
			acts = w.enabled(acts)
			if quiet(acts) && w.unsettled() == "" {
				marks[st] = well
				break
			}
			a, ok := w.fair(acts)
			if !ok {
				break
			}
			w.do(a)
			if len(w.violations) > 0 {
				return checked, &Finding{Violation: w.violations[0], from: uint32(i), by: a}
			}
			st = w.pack()
		}
		if marks[st] != well {
			w := s.x.look(st)
			why := w.unsettled()
			if why == "" {
				why = "time stands still"
			}
			return checked, &Finding{Violation: Violation{"settle", why}, from: uint32(i)}
		}
		for _, st := range way {
			marks[st] = well
		}
	}
	return checked, nil
}

package explore

import "math/bits"

// index finds states in a list of them, by open addressing: 4 bytes for each place.
type index struct {
	places []uint32 // 1 + the number of the state; 0: free
	used   int
}

func (s *state) hash() uint64 {
	h := uint64(s.server)
	for i := range maxPods {
		h = mix(h ^ (uint64(s.members[i])<<32 | uint64(s.boxes[i])))
	}
	return h
}

// mix is the finaliser of MurmurHash3 around a multiplication that keeps all bits.
func mix(h uint64) uint64 {
	high, low := bits.Mul64(h^0x9e3779b97f4a7c15, 0xff51afd7ed558ccd)
	h = high ^ low
	return h ^ h>>29
}

// find returns the number of a state, or else where it belongs.
func (x *index) find(states []state, s *state) (n uint32, place int, ok bool) {
	if 3*x.used >= 2*len(x.places) {
		x.grow(states)
	}
	mask := len(x.places) - 1
	for at := int(s.hash()) & mask; ; at = (at + 1) & mask {
		switch p := x.places[at]; {
		case p == 0:
			return 0, at, false
		case states[p-1] == *s:
			return p - 1, at, true
		}
	}
}

func (x *index) put(place int, n uint32) {
	x.places[place] = n + 1
	x.used++
}

func (x *index) grow(states []state) {
	x.places = make([]uint32, max(1024, 2*len(x.places)))
	mask := len(x.places) - 1
	for n := range states {
		at := int(states[n].hash()) & mask
		for x.places[at] != 0 {
			at = (at + 1) & mask
		}
		x.places[at] = uint32(n) + 1
	}
}

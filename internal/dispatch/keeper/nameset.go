package keeper

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
)

// nameSet is a compact set of objects' names that can find the names that a list no longer shows. A name takes its own
// bytes, up to 4 more, and 5 to 9 of an index. The set contains no pointers per name. The zero nameSet is empty. It is
// not safe for concurrent use.
//
// To find deleted names, call Clear, then See for each name of a complete list that began after that, and then Sweep.
// Names that are added meanwhile count as seen.
type nameSet struct {
	// text has a record for each name: its length and two flags as a varint, and its bytes.
	text []byte
	// index is an open-addressing hash table of offsets in text, plus 1. free and moved are special values.
	index []uint32
	// live is the number of names, used the number of entries in index that are not free, and dead the bytes of removed
	// names.
	live, used, dead int
	seed             maphash.Seed
}

// Flags in a record's head.
const (
	seen = 1 << iota
	removed
	flags = 2 // bits
)

const (
	free  = 0
	moved = 1<<32 - 1 // its name was removed; a search continues past it
	// leastIndex is the smallest size of an index.
	leastIndex = 8
	// growth is the divisor of text's size by which it grows.
	growth = 16
)

// Len is the number of names.
func (s *nameSet) Len() int { return s.live }

// Bytes is the memory that the set takes.
func (s *nameSet) Bytes() int { return cap(s.text) + 4*cap(s.index) }

// Add adds a name, which counts as seen.
func (s *nameSet) Add(name []byte) {
	if _, at := s.find(name); at >= 0 {
		s.text[at] |= seen
		return
	}
	if 4*(s.used+1) > 3*len(s.index) {
		s.rebuild()
	}
	place := s.vacancy(name)
	if s.index[place] == free {
		s.used++
	}
	s.live++
	s.index[place] = uint32(len(s.text)) + 1 // text stays below 4 GiB
	if need := len(s.text) + binary.MaxVarintLen64 + len(name); need > cap(s.text) {
		// append would reserve a quarter more.
		s.text = append(make([]byte, 0, need+len(s.text)/growth), s.text...)
	}
	s.text = binary.AppendUvarint(s.text, uint64(len(name))<<flags|seen)
	s.text = append(s.text, name...)
}

// See marks a name as seen in a list. It returns false if the set does not contain it.
func (s *nameSet) See(name []byte) bool {
	_, at := s.find(name)
	if at >= 0 {
		s.text[at] |= seen
	}
	return at >= 0
}

// Remove removes a name.
func (s *nameSet) Remove(name []byte) {
	place, at := s.find(name)
	if at < 0 {
		return
	}
	s.index[place] = moved
	s.drop(at)
	s.tidy()
}

// drop marks the record at an offset as removed.
func (s *nameSet) drop(at int) {
	length, head := binary.Uvarint(s.text[at:])
	s.text[at] |= removed
	s.live--
	s.dead += head + int(length>>flags) // within text
}

// tidy frees memory when removed names take much of it.
func (s *nameSet) tidy() {
	if s.live == 0 {
		*s = nameSet{}
	} else if s.dead > 256 && s.dead > len(s.text)/4 {
		s.rebuild()
	}
}

// Clear marks all names as not seen.
func (s *nameSet) Clear() {
	s.each(func(at int, _ []byte) { s.text[at] &^= seen })
}

// Sweep removes the names that have not been seen since Clear, and calls gone for each. The bytes are valid until it
// returns.
func (s *nameSet) Sweep(gone func(name []byte)) {
	before := s.live
	s.each(func(at int, name []byte) {
		if s.text[at]&seen == 0 {
			gone(name)
			s.drop(at)
		}
	})
	if s.live < before {
		s.rebuild()
	}
}

// each calls do for each name.
func (s *nameSet) each(do func(at int, name []byte)) {
	for at := 0; at < len(s.text); {
		length, head := binary.Uvarint(s.text[at:])
		end := at + head + int(length>>flags) // within text
		if s.text[at]&removed == 0 {
			do(at, s.text[at+head:end])
		}
		at = end
	}
}

// find returns a name's place in index and its offset in text, or -1 if it is missing.
func (s *nameSet) find(name []byte) (place, at int) {
	if len(s.index) == 0 {
		return 0, -1
	}
	for place = s.first(name); ; place = s.next(place) {
		switch offset := s.index[place]; offset {
		case free:
			return 0, -1
		case moved:
		default:
			at = int(offset - 1)
			length, head := binary.Uvarint(s.text[at:])
			if have := s.text[at+head:]; bytes.Equal(have[:length>>flags], name) {
				return place, at
			}
		}
	}
}

// vacancy returns the place for a name that is not in the set.
func (s *nameSet) vacancy(name []byte) int {
	place := s.first(name)
	for s.index[place] != free && s.index[place] != moved {
		place = s.next(place)
	}
	return place
}

func (s *nameSet) first(name []byte) int {
	place, _ := bits.Mul64(maphash.Bytes(s.seed, name), uint64(len(s.index)))
	return int(place) // below len
}

func (s *nameSet) next(place int) int {
	if place++; place < len(s.index) {
		return place
	}
	return 0
}

// rebuild copies the set with room for an eighth more, and without removed names.
func (s *nameSet) rebuild() {
	size := leastIndex
	for 4*(s.live+s.live/8+1) > 3*size {
		size += size / 2
	}
	old := *s
	*s = nameSet{text: make([]byte, 0, len(old.text)-old.dead), index: make([]uint32, size)}
	s.live, s.used = old.live, old.live
	s.seed = maphash.MakeSeed()
	old.each(func(at int, name []byte) {
		s.index[s.vacancy(name)] = uint32(len(s.text)) + 1
		s.text = binary.AppendUvarint(s.text, uint64(len(name))<<flags|uint64(old.text[at]&seen))
		s.text = append(s.text, name...)
	})
}

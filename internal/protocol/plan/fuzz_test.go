package plan

import (
	"fmt"
	"testing"

	"github.com/rota-dev/rota/slot"
)

// FuzzAssign reads owners and members from bytes and asks the oracle. The lowest bits of a byte of slots name its
// owner, the highest says that it is moving; a byte of members holds weight and flags.
func FuzzAssign(f *testing.F) {
	f.Add([]byte("................"), []byte("\x08\x08\x08"), byte(0))
	f.Add([]byte("\x00\x00\x00\x00\x01\x01\x01\x01\x02\x02\x02\x02"), []byte("\x08\x08\x08\x08"), byte(0))
	f.Add([]byte("\x80\x80\x00\x00\x81\x01\x01\x01\x02\x82\x02\x02"), []byte("\x08\x1c\x08\x2a"), byte(0))
	f.Add([]byte("\x80\x80\x00\x00\x81\x01\x01\x01\x02\x82\x02\x02"), []byte("\x08\x10\x08\x28"), byte(1))
	f.Add([]byte("\x00\x00\x00\x00\x01\x01\x01\x01\x02\x02\x02\x02"), []byte("\x18\x28\x58\x29"), byte(0x83))
	f.Fuzz(func(t *testing.T, slots, members []byte, options byte) {
		if len(slots) > 256 || len(members) > 31 {
			t.Skip("large")
		}
		name := func(i int) string { return fmt.Sprint("m-", i) }
		in := Input{Owners: make([]string, len(slots)), Tolerant: options&1 != 0}
		if options&0x80 != 0 {
			in.Only = name(int(options >> 1 & 31))
		}
		for s, b := range slots {
			if b&31 != 31 {
				in.Owners[s] = name(int(b & 31))
			}
			if b&0x80 != 0 {
				in.Moving.Add(slot.Slot(s))
			}
		}
		for i, b := range members {
			in.Members = append(in.Members, Member{
				ID: name(i), Weight: int(b>>4) + 1, Leaves: b&1 != 0, Prefer: b&2 != 0, Receives: b&8 != 0,
			})
		}
		check(t, in, Assign(in))
	})
}

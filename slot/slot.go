package slot

import (
	"fmt"
	"math/bits"
	"strconv"
)

// Slot is the number of a slot. Hash slots are numbered from 0 to the rota's Count minus one. Duty slots follow,
// starting at Count.
type Slot uint16

const (
	// DefaultCount is the number of slots of a rota unless its options set another.
	DefaultCount = 256
	// MaxCount is the largest number of slots of a rota.
	MaxCount = 4096
	// MaxDuties is the largest number of duties of a rota. Each has a slot, numbered after the hash slots.
	MaxDuties = 512
	// limit is above the number of every slot.
	limit = MaxCount + MaxDuties
)

// Count is the number of slots of a rota: a power of two from 1 to MaxCount.
type Count int

// Validate returns an error if c is not a power of two or is out of range.
func (c Count) Validate() error {
	if c < 1 || c > MaxCount || c&(c-1) != 0 {
		return fmt.Errorf("slot count %d: must be a power of two from 1 to %d; the default is %d",
			int(c), MaxCount, DefaultCount)
	}
	return nil
}

// Of returns the slot of a hash: its top log2(c) bits. c must be valid.
func (c Count) Of(hash uint64) Slot {
	return Slot(hash >> c.shift())
}

// Hashes returns the first and last hash of a slot, both inclusive.
func (c Count) Hashes(s Slot) (first, last uint64) {
	shift := c.shift()
	first = uint64(s) << shift
	return first, first | (1<<shift - 1)
}

// shift is 64 for a count of 1; Go defines such shifts as 0.
func (c Count) shift() uint { return uint(64 - bits.TrailingZeros(uint(c))) }

// String returns the slot's number.
func (s Slot) String() string { return strconv.Itoa(int(s)) }

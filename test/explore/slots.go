package explore

import "github.com/rota-dev/rota/slot"

func slotsOf(mask uint8) (set slot.Set) {
	for s := range slot.Slot(8) {
		if mask>>s&1 != 0 {
			set.Add(s)
		}
	}
	return set
}

func maskOf(set slot.Set, slots int) (mask uint8) {
	for s := range slot.Slot(slots) {
		if set.Has(s) {
			mask |= 1 << s
		}
	}
	return mask
}

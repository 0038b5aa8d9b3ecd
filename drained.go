package rota

import (
	"slices"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// drained reports a slot in which nothing is in flight any more. If the versions of some writes there are not known,
// deletions among them, settleDrained reports the slot later: its next owner has to know how new its informers must be
// (rule R8). gone are the deletions left to that owner. drained does not block.
func (i *incarnation) drained(round uint64, s slot.Slot, gone []table.Gone) {
	if i.rota.share.Unsettled(s) {
		i.settling.idle(round, s, gone)
	} else {
		i.box.idle(round, s, gone)
	}
}

// settleDrained reports drained slots once those versions are known, until the incarnation ends.
func (i *incarnation) settleDrained() {
	for {
		select {
		case <-i.settling.filled:
		case <-i.ctx.Done():
			return
		}
		for _, e := range i.settling.take(func(set slot.Set) table.Versions {
			i.rota.share.Settle(i.ctx, set)
			return nil
		}) {
			d, _ := e.(member.Drained)
			for _, s := range d.Slots.Slots() {
				gone := slices.DeleteFunc(slices.Clone(d.Gone), func(g table.Gone) bool { return g.Slot != s })
				i.box.idle(d.Round, s, gone) // the member ignores a drain that was called off meanwhile
			}
		}
	}
}

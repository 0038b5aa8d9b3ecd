package judge

import (
	"fmt"
)

// misuses says what is wrong with epochs in the table's history: one does not rise (rule R3), or two owners of a slot
// have the same one, so that it is no fencing token (rule R12).
func misuses(tables History) []string {
	var out []string
	type held struct {
		owner string
		epoch uint64
	}
	slots := map[int]held{}
	for i, v := range tables {
		if i > 0 && v.Table.UID == tables[i-1].Table.UID && v.Table.Epoch <= tables[i-1].Table.Epoch {
			out = append(out, fmt.Sprintf("table at resourceVersion %s by %s has epoch %d, after epoch %d",
				v.Version, v.User, v.Table.Epoch, tables[i-1].Table.Epoch))
		}
		for _, r := range v.Table.Runs {
			if r.Owner == "" {
				continue
			}
			for s := int(r.Slots.First); s <= int(r.Slots.Last); s++ {
				if was := slots[s]; was.owner != "" && was.owner != r.Owner && r.Epoch <= was.epoch {
					out = append(out, fmt.Sprintf("table at resourceVersion %s by %s gives slot %d to %s at epoch %d, "+
						"after %s at epoch %d", v.Version, v.User, s, r.Owner, r.Epoch, was.owner, was.epoch))
				}
				slots[s] = held{r.Owner, r.Epoch}
			}
		}
	}
	return out
}

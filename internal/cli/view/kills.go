package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// killsAtLeast is how many processes must have panicked at an object and ended: one may have had reasons of its own.
	killsAtLeast = 2
	// quietKills is how long after the last panic an object counts as harmless again. A container that ends again and
	// again is started every 5 minutes at least, and a Pod that was expelled twice gets no slots for as long.
	quietKills = 15 * time.Minute
)

// panicked finds in a ReconcilePanicked the controller, kind, object and slot.
var panicked = regexp.MustCompile(`^controller (.+) panicked at (\S+) (?:(\S+)/)?(\S+) in slot (\d+)\.`)

// addKeyKills makes problems of objects at which process after process panicked, and is gone. It comes after
// judgeWarnings, which finds out whose process is still there.
func (r *Rota) addKeyKills() {
	type victim struct{ controller, object, slot string }
	kills := map[victim][]Warning{}
	var order []victim
	for _, w := range r.Warnings {
		m := panicked.FindStringSubmatch(w.Message)
		if w.Reason != "ReconcilePanicked" || m == nil || w.ID != "" {
			continue
		}
		about := subject{kind: schema.ParseGroupKind(m[2]), namespace: m[3], name: m[4]}
		v := victim{m[1], about.String(), m[5]}
		if kills[v] == nil {
			order = append(order, v)
		}
		kills[v] = append(kills[v], w)
	}
	var out []Problem
	for _, v := range order {
		all := kills[v]
		if len(all) < killsAtLeast || r.At.Sub(all[len(all)-1].At) > quietKills {
			continue
		}
		var pods []string
		for _, w := range all {
			pods = append(pods, w.Member)
		}
		slices.Sort(pods)
		out = append(out, Problem{Severity: Error, What: KeyKills, Slots: v.slot, Object: v.object, Message: fmt.Sprintf(
			"controller %s panicked at %s %d times in the last hour, last %s ago, in processes that have ended since (Pods "+
				"%s). The object ends one owner of its slot after the other. Correct or delete it, or repair the reconciler; the "+
				"log of a container's last run has the stack: kubectl logs --previous", v.controller, v.object, len(all),
			ago(r.At.Sub(all[len(all)-1].At).Seconds()), strings.Join(slices.Compact(pods), ", "))})
	}
	r.Problems = append(out, r.Problems...) // errors come first
}

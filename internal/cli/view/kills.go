package view

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
)

const (
	// killsAtLeast is how many processes must have panicked at an object and ended: one may have had reasons of its own.
	killsAtLeast = 2
	// quietKills is how long after the last panic an object counts as harmless again. A container that ends again and
	// again is started every 5 minutes at least, and a Pod that was expelled twice gets no slots for as long.
	quietKills = 15 * time.Minute
	// outlives is for how long a member must have worked on an object's slot to have outlived the object.
	outlives = time.Minute
)

// panicked finds in a ReconcilePanicked the controller, kind, object, slot and process. Older builds name no process.
var panicked = regexp.MustCompile(
	`^controller (.+) panicked at (\S+) (?:(\S+)/)?(\S+) in slot (\d+)\.(?:.*\(process (\S+)\)$)?`)

// addKeyKills makes problems of objects at which process after process panicked, and is gone. It comes after
// judgeWarnings, which finds out whose process is still there.
func (r *Rota) addKeyKills() {
	type victim struct{ controller, object, slot string }
	type process struct {
		victim
		name string
	}
	kills := map[victim][]Warning{} // the first panic of each process
	last := map[victim]time.Time{}
	seen := map[process]bool{}
	var order []victim
	alive, survived := map[string]bool{}, map[victim]bool{}
	for _, report := range r.Reports {
		alive[report.Setup[coverage.SettingProcess]] = true
	}
	for _, w := range r.Warnings {
		m := panicked.FindStringSubmatch(w.Message)
		if w.Reason != "ReconcilePanicked" || m == nil || r.noticed("Leaving", "", w) {
			continue
		}
		about := subject{kind: schema.ParseGroupKind(m[2]), namespace: m[3], name: m[4]}
		v := victim{m[1], about.String(), m[5]}
		if w.ID != "" || alive[m[6]] && m[6] != "" {
			survived[v] = survived[v] || r.At.Sub(w.At) > outlives
			continue
		}
		last[v] = w.At
		if by := (process{v, cmp.Or(m[6], w.Member)}); !seen[by] {
			seen[by] = true
			kills[v] = append(kills[v], w)
			if len(kills[v]) == killsAtLeast {
				order = append(order, v)
			}
		}
	}
	var out []Problem
	for _, v := range order {
		all := kills[v]
		n := len(all)
		if survived[v] || r.At.Sub(last[v]) > quietKills || r.outlived(v.slot, max(outlives, all[n-1].At.Sub(all[n-2].At))) {
			continue
		}
		var pods []string
		for _, w := range all {
			pods = append(pods, w.Member)
		}
		slices.Sort(pods)
		out = append(out, Problem{Severity: Error, What: KeyKills, Slots: v.slot, Object: v.object, Message: fmt.Sprintf(
			"controller %s panicked at %s in %d processes in the last hour, last %s ago, and these have ended since (Pods "+
				"%s). The object ends one owner of its slot after the other. Correct or delete it, or repair the reconciler; the "+
				"log of a container's last run has the stack: kubectl logs --previous", v.controller, v.object, n,
			ago(r.At.Sub(last[v]).Seconds()), strings.Join(slices.Compact(pods), ", "))})
	}
	r.Problems = append(out, r.Problems...) // errors come first
}

// outlived reports whether the owner of a slot has worked on it for so long, and no key of the slot waits: it has
// reconciled the object, or the object is gone.
func (r *Rota) outlived(of string, d time.Duration) bool {
	n, err := strconv.Atoi(of)
	if err != nil || n >= int(r.Slots) {
		return false
	}
	run := r.Table.At(slot.Slot(n))
	report := r.Reports[run.Owner]
	m, there := r.memberOf(run.Owner)
	if report == nil || !there || !report.Open.Has(slot.Slot(n)) || report.Waiting[slot.Slot(n)] > 0 {
		return false
	}
	since := m.Joined
	if h, known := r.handoverOf(run); known {
		since = h.Ended
	}
	return r.At.Sub(since) > d
}

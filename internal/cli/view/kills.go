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
	// killsAtLeast is how many processes must have panicked on an object and ended. One may have ended for other reasons.
	killsAtLeast = 2
	// quietKills after the last panic an object counts as harmless again. A container that crashes repeatedly is restarted
	// at least every 5 minutes, and a Pod that was expelled twice gets no slots for that long.
	quietKills = 15 * time.Minute
	// A member that has worked on an object's slot for outlives has survived the object.
	outlives = time.Minute
)

// panicked extracts the controller, kind, object, slot and process from a ReconcilePanicked. Older builds omit the
// process.
var panicked = regexp.MustCompile(
	`^controller (.+) panicked at (\S+) (?:(\S+)/)?(\S+) in slot (\d+)\.(?:.*\(process (\S+)\)$)?`)

// addKeyKills adds a problem for each object on which several processes panicked and then ended. It runs after
// judgeWarnings, which finds the processes that are still alive.
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
		if w.Reason != "ReconcilePanicked" || m == nil || r.sentLater("Leaving", "", w) {
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
			"controller %s panicked on %s in %d processes in the last hour, last %s ago, and these have ended since (Pods "+
				"%s). The object crashes one owner of its slot after another. Correct or delete it, or fix the reconciler; the "+
				"log of a container's previous run has the stack: kubectl logs --previous", v.controller, v.object, n,
			ago(r.At.Sub(last[v]).Seconds()), strings.Join(slices.Compact(pods), ", "))})
	}
	r.Problems = append(out, r.Problems...) // errors first
}

// outlived reports whether the owner of a slot has worked on it for d, and no key of the slot waits. Then it has
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

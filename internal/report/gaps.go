package report

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/group"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/member"
)

// nothing stands for an empty list of controllers in a report.
const nothing = "-"

// Announce adds the controllers that this member runs to the settings in its report. g may be nil.
func Announce(g *group.Group, out map[string]string) {
	if g == nil {
		return
	}
	list := func(names []string) string {
		if len(names) == 0 {
			return nothing
		}
		return strings.Join(names, ",")
	}
	out[coverage.SettingProgram] = g.Program()
	out[coverage.SettingExpected] = list(g.Expected())
	out[coverage.SettingControllers] = list(g.Controllers())
}

// gaps tracks controllers of this member's program that are in no group or in several.
type gaps struct {
	mu       sync.Mutex
	seen     map[string]renewal          // by rota and member
	since    map[group.Gap]time.Duration // when each was first seen
	reported map[group.Gap]bool
	found    []group.Gap
}

func (g *gaps) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen, g.since, g.reported, g.found = nil, nil, nil, nil
}

// Gaps returns the controllers of this member's program that are in no group or in several.
func (r *Reporter) Gaps() []group.Gap {
	r.gaps.mu.Lock()
	defer r.gaps.mu.Unlock()
	return slices.Clone(r.gaps.found)
}

// compareGroups compares what the rotas of this member's program run. It reports controllers that are in no group or in
// several, if two looks show that and it lasts longer than the takeover from a crashed member: groups start and roll
// out one after the other.
func (r *Reporter) compareGroups(m Member) {
	env := r.env
	if env.Group == nil {
		return
	}
	all, err := env.Store().ReadAll(m.Context())
	if len(all) == 0 || err != nil && m.Context().Err() != nil {
		return // compare reports the error
	}
	bounds := coverage.BoundsOf(env.Config.LeaseDuration, env.Config.FenceDelay)
	for _, gap := range r.gaps.look(env.Now(), env.Group.Program(), all, bounds) {
		m.Notify(member.Notify{Reason: "GroupsDiffer", Warning: true, Message: gap.String()})
	}
}

// look returns the gaps to report for the first time.
func (g *gaps) look(now time.Duration, program string, all map[string][]*coverage.Report, bounds coverage.Bounds,
) (fresh []group.Gap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen == nil {
		g.seen, g.since, g.reported = map[string]renewal{}, map[group.Gap]time.Duration{}, map[group.Gap]bool{}
	}
	var running []group.Running
	seen := map[string]renewal{}
	for _, rota := range slices.Sorted(maps.Keys(all)) {
		for _, report := range all[rota] {
			key := rota + " " + report.Member
			last, known := g.seen[key]
			if !known || last.serial != report.Serial {
				last = renewal{serial: report.Serial, at: now}
			}
			seen[key] = last
			if report.Setup[coverage.SettingProgram] != program || now-last.at > bounds.Stale {
				continue
			}
			running = append(running, group.Running{
				Rota: rota, Expected: splitNames(report.Setup[coverage.SettingExpected]),
				Controllers: splitNames(report.Setup[coverage.SettingControllers]),
			})
		}
	}
	since := map[group.Gap]time.Duration{}
	reported := map[group.Gap]bool{}
	g.found = nil
	for _, gap := range group.Gaps(running) {
		at, known := g.since[gap]
		if !known {
			at = now
		}
		since[gap] = at
		if !known || now-at < bounds.Recovery {
			continue
		}
		g.found = append(g.found, gap)
		if reported[gap] = true; !g.reported[gap] {
			fresh = append(fresh, gap)
		}
	}
	g.seen, g.since, g.reported = seen, since, reported
	return fresh
}

// splitNames splits a list in a report.
func splitNames(list string) []string {
	if list == "" || list == nothing {
		return nil
	}
	return strings.Split(list, ",")
}

package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// Settings are the keys of Report.Setup. A setting that is missing was not reported by that version.
const (
	SettingLease    = "LeaseDuration"
	SettingDeadline = "RenewDeadline"
	SettingRetry    = "RetryPeriod"
	SettingWrite    = "WriteTimeout"
	SettingFence    = "FenceDelay"
	SettingDelivery = "Delivery"
	SettingLabel    = "Label"
	// SettingBalance is what the member's plans balance: number or load (rule R21).
	SettingBalance = "Balance"
	// SettingWorkload is the member's Deployment or StatefulSet, if known. Members may differ in it. It separates a
	// rollout from two Deployments with the same rota name.
	SettingWorkload = "Workload"
	// SettingProgram is the name of the program, if it is divided into groups. SettingExpected are the controllers that
	// some group has to run, and SettingControllers those that this member runs, separated by commas.
	SettingProgram     = "Program"
	SettingExpected    = "Expected"
	SettingControllers = "Controllers"
	// SettingProcess is the ID of the process, which may have several incarnations one after another.
	SettingProcess = "Process"
	// SettingDispatched are the kinds whose keys the member hands out to workers, separated by commas.
	SettingDispatched = "Dispatched"
	// SettingDispatcher is the address of a dispatcher. Each member has a different one.
	SettingDispatcher = "Dispatcher"
	// SettingElection is the Lease of leader election that the member may hold for the rota, as NAMESPACE/NAME (rule R20).
	SettingElection = "Election"
	// SettingImpersonates are the users that the member's clients impersonate for writes, formatted with %q.
	SettingImpersonates = "Impersonates"
	// SettingBookmarkless are the kinds whose watches send the member no bookmarks, separated by commas.
	SettingBookmarkless = "Bookmarkless"
	// SettingLabels are the member's labels, which pins may select (rule R22), as in table.Member.
	SettingLabels = "Labels"
)

// Values of SettingBalance.
const (
	BalanceNumber = "number"
	BalanceLoad   = "load"
)

// alike are the settings that all members should share unless a rollout is going on.
var alike = []string{SettingLease, SettingDeadline, SettingRetry, SettingWrite, SettingFence, SettingDelivery,
	SettingLabel, SettingBalance, SettingElection, SettingProgram, SettingControllers, SettingDispatched}

// pairs are durations that must be shorter on every member than another duration on every member, with the reason.
var pairs = []struct{ short, long, why string }{
	{SettingDeadline, SettingLease, "a member would still work when another one gives its slots away"},
	{SettingWrite, SettingFence, "a write of an expelled member could still come when the new owner works"},
}

// Value is a value shared by some members.
type Value struct {
	Text    string
	Members []string // in order
}

// Difference is a setting or a kind in which members differ.
type Difference struct {
	// About is the setting's name, or "kind " and the kind.
	About string
	// Values holds at least two values.
	Values []Value
	// Clash is why these members cannot work together. It is empty if the difference may come from a rollout and end with
	// it.
	Clash string
}

// maxNamed is how many members are listed for each value.
const maxNamed = 3

func (v Value) String() string {
	more := ""
	named := v.Members
	if n := len(named) - maxNamed; n > 0 {
		named, more = named[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%s (%s%s)", v.Text, strings.Join(named, ", "), more)
}

func (d Difference) values() string {
	var out []string
	for _, v := range d.Values {
		out = append(out, v.String())
	}
	return strings.Join(out, ", ")
}

// String returns the setting or kind, its values with their members, and the reason for a clash.
func (d Difference) String() string {
	text := "members differ in " + d.About + ": " + d.values()
	if d.Clash != "" {
		text += "; " + d.Clash
	}
	return text
}

// Members returns the members of all values, in order.
func (d Difference) Members() []string {
	var out []string
	for _, v := range d.Values {
		out = append(out, v.Members...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// finding returns the difference as a finding.
func (d Difference) finding() Finding {
	return Finding{What: Mixed, Members: strings.Join(d.Members(), " "), About: d.About, Values: d.values(),
		Clash: d.Clash}
}

// kind returns the kind in which members differ; ok is false for a setting.
func (d Difference) kind() (schema.GroupKind, bool) {
	name, ok := strings.CutPrefix(d.About, kindPrefix)
	return schema.ParseGroupKind(name), ok
}

const kindPrefix = "kind "

// Differences returns how the members with these reports differ, settings before kinds, each in order.
func Differences(reports []*Report) []Difference {
	reports = slices.SortedFunc(slices.Values(reports),
		func(a, b *Report) int { return strings.Compare(a.Member, b.Member) })
	var out []Difference
	add := func(about string, value func(*Report) string) {
		d := differenceOf(reports, about, value)
		if about == SettingElection {
			d.Clash = "" // the rota can still work
		}
		if len(d.Values) > 1 {
			out = append(out, d)
		}
	}
	for _, name := range alike {
		add(name, func(r *Report) string { return r.Setup[name] })
	}
	for _, p := range pairs {
		if d, clash := clashOf(reports, p.short, p.long); clash {
			d.Clash = p.why + ": " + p.short + " must be shorter than the " + p.long + " of every member"
			out = append(out, d)
		}
	}
	kinds := map[schema.GroupKind]bool{}
	for _, r := range reports {
		for kind := range r.Digests {
			kinds[kind] = true
		}
	}
	for _, kind := range slices.SortedFunc(maps.Keys(kinds), byName) {
		add(kindPrefix+kind.String(), func(r *Report) string { return r.roleOf(kind) })
	}
	return out
}

// DifferencesIn returns the Differences between the members in the table.
func DifferencesIn(t *table.Table, reports []*Report) []Difference {
	return Differences(ofMembers(t, reports))
}

// roleOf describes how the member shards a kind.
func (r *Report) roleOf(kind schema.GroupKind) string {
	if _, ok := r.Digests[kind]; !ok {
		return "not sharded"
	}
	owners := slices.SortedFunc(maps.Keys(r.Owners[kind]), byName)
	if len(owners) == 0 {
		return "sharded by its own key"
	}
	names := make([]string, 0, len(owners))
	for _, owner := range owners {
		names = append(names, owner.String())
	}
	return "sharded by its owner " + strings.Join(names, " or ")
}

// differenceOf groups members by a value. It leaves out members that do not report it.
func differenceOf(reports []*Report, about string, value func(*Report) string) Difference {
	d := Difference{About: about}
	members, workloads := map[string][]string{}, map[string][]string{} // by value
	for _, r := range reports {
		text := value(r)
		if text == "" {
			continue
		}
		members[text] = append(members[text], r.Member)
		if workload := r.Setup[SettingWorkload]; workload != "" {
			workloads[text] = append(workloads[text], workload)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(members)) {
		for _, before := range d.Values {
			if a, b, ok := apart(workloads[before.Text], workloads[text]); ok && d.Clash == "" {
				d.Clash = fmt.Sprintf("they belong to different workloads, %s and %s: give one of them another Options.Name", a, b)
			}
		}
		d.Values = append(d.Values, Value{text, members[text]})
	}
	return d
}

// apart returns two different names, one from each list, in order.
func apart(a, b []string) (first, second string, ok bool) {
	for _, x := range a {
		for _, y := range b {
			if x != y {
				return min(x, y), max(x, y), true
			}
		}
	}
	return "", "", false
}

// clashOf returns the members whose short duration is too long, and the members whose long duration is too short for
// them.
func clashOf(reports []*Report, short, long string) (Difference, bool) {
	highest, lowest := time.Duration(0), time.Duration(0)
	var high, low []string
	for _, r := range reports {
		if d, err := time.ParseDuration(r.Setup[short]); err == nil && d >= highest {
			if d > highest {
				high = nil
			}
			highest, high = d, append(high, r.Member)
		}
		if d, err := time.ParseDuration(r.Setup[long]); err == nil && (len(low) == 0 || d <= lowest) {
			if d < lowest {
				low = nil
			}
			lowest, low = d, append(low, r.Member)
		}
	}
	d := Difference{About: short + " and " + long,
		Values: []Value{{short + " " + highest.String(), high}, {long + " " + lowest.String(), low}}}
	return d, len(high) > 0 && len(low) > 0 && highest >= lowest
}

// Conflicts returns why a member that is about to join cannot work together with the members that made the reports. It
// leaves out conflicts that already exist between working members: they are reported anyway, and would not end sooner
// if this member waited.
func Conflicts(joiner *Report, reports []*Report) []Difference {
	clashes := func(a, b *Report) bool {
		return slices.ContainsFunc(Differences([]*Report{a, b}), func(d Difference) bool { return d.Clash != "" })
	}
	var against []*Report
	for _, r := range reports {
		if clashes(joiner, r) && !slices.ContainsFunc(reports,
			func(o *Report) bool { return !clashes(joiner, o) && clashes(o, r) }) {
			against = append(against, r)
		}
	}
	if len(against) == 0 {
		return nil
	}
	return slices.DeleteFunc(Differences(append(against, joiner)), func(d Difference) bool {
		return d.Clash == "" || !slices.Contains(d.Members(), joiner.Member)
	})
}

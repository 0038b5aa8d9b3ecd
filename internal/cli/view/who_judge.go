package view

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// judge determines the member that works on an object in that place. It is pure.
func (r *Rota) judge(about subject, p place, exist listed) *Who {
	w := &Who{
		Works: WorksYes, Kind: about.kind.String(), Namespace: about.namespace, Name: about.name,
		Rota: r.Namespace + "/" + r.Name, Slots: r.Slots, Reasons: []string{}, Notes: []string{}, Problems: []Problem{},
		Warnings: []Warning{}, By: p.by, Owner: p.owner,
	}
	switch {
	case about.unread != nil:
		w.note("it cannot be read, so it may not exist: %s", oneLine(about.unread))
	case about.object == nil:
		w.Exists = ptr.To(false)
		w.no("there is no %s of that name", about.kind)
	default:
		w.Exists = ptr.To(true)
		if at := about.object.DeletionTimestamp; at != nil {
			w.Deleting = &at.Time
			w.note("%s", deletingText(about.object))
		}
	}
	switch {
	case r.Shadow != nil:
		if p.nowhere == "" {
			w.Slot = ptr.To(int(p.slot))
		}
	case p.nowhere != "" && p.uncertain:
		w.unknown("%s", p.nowhere)
	case p.nowhere != "" && (w.Exists == nil || *w.Exists || p.roles == nil):
		w.no("%s", p.nowhere)
	case p.nowhere == "":
		w.Slot = ptr.To(int(p.slot))
		if p.also != "" {
			w.note("%s", p.also)
		}
		r.judgeSlot(w, about, p)
		r.judgeDelivery(w, about, p, exist)
		r.judgeHealth(w)
	}
	if w.Answer = w.answer(about); r.Shadow != nil {
		r.judgeShadow(w, about, p)
	}
	return w
}

// no adds a reason why no member works on the object.
func (w *Who) no(format string, args ...any) {
	w.Works = WorksNo
	w.Reasons = append(w.Reasons, fmt.Sprintf(format, args...))
}

// unknown adds a reason why the answer is unknown.
func (w *Who) unknown(format string, args ...any) {
	if w.Works == WorksYes {
		w.Works = WorksUnknown
	}
	w.Reasons = append(w.Reasons, fmt.Sprintf(format, args...))
}

func (w *Who) note(format string, args ...any) {
	w.Notes = append(w.Notes, fmt.Sprintf(format, args...))
}

// answer returns the answer as a sentence.
func (w *Who) answer(about subject) string {
	reason := ""
	if len(w.Reasons) > 0 {
		reason = ": " + w.Reasons[0]
	}
	switch {
	case w.Exists != nil && !*w.Exists && w.Member != "":
		return fmt.Sprintf("%s does not exist; %s would work on it", about, w.Member)
	case w.Works == WorksNo:
		return fmt.Sprintf("no member works on %s%s", about, reason)
	case w.Works == WorksUnknown:
		return fmt.Sprintf("cannot determine which member works on %s%s", about, reason)
	}
	answer := fmt.Sprintf("%s works on %s", w.Member, about)
	if w.Dispatched {
		answer = fmt.Sprintf("%s hands %s out to workers", w.Member, about)
	}
	answer += w.healthText()
	if w.Late != nil {
		answer += fmt.Sprintf(", unless it is dead: it has not renewed its Lease for %s", ago(*w.Late))
	}
	return answer
}

func deletingText(obj *metav1.PartialObjectMetadata) string {
	text := "it is being deleted"
	if len(obj.Finalizers) == 0 {
		return text + ", and has no finalizers"
	}
	return text + "; it is gone once its finalizers are removed: " + strings.Join(obj.Finalizers, ", ")
}

// judgeSlot checks the slot and the member that owns it.
func (r *Rota) judgeSlot(w *Who, about subject, p place) {
	n := int(p.slot)
	for _, problem := range r.Problems {
		slots, _ := slot.ParseSet(strings.ReplaceAll(problem.Slots, " ", ","))
		if problem.Object != "" && problem.Object != about.String() {
			continue
		}
		everything := problem.Slots == "" && problem.Member == "" && problem.What == OldCopy
		if everything || slots.Has(p.slot) || problem.Slots == "" && problem.Member != "" &&
			problem.Member == r.Table.At(p.slot).Owner {
			w.Problems = append(w.Problems, problem)
		}
		if everything {
			w.no("%s", problem.Message)
		}
	}
	for _, m := range r.Moves {
		if m.Duty == "" && m.First <= n && n <= m.Last {
			w.Move = &m
		}
	}
	run := r.Table.At(p.slot)
	if run.Owner == "" {
		w.no("slot %d has no owner; members that renew their Leases take it within seconds, or log why "+
			"they cannot", n)
		return
	}
	w.Member, w.Since, w.SlotLoad = run.Owner, r.since(run), r.loadOf(p.slot)
	w.Load = r.hotOf(w.Kind, w.Namespace, w.Name)
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.ID == run.Owner })
	m := r.Members[i] // owners are members: the table is valid
	w.Pod, w.State = m.Pod, m.State
	for _, e := range slices.Backward(r.Now()) {
		if slots := slotsIn(e.Message); slots.Has(p.slot) || slots.Empty() && e.ID == m.ID {
			w.Warnings = append(w.Warnings, e)
		}
	}
	reason, leasesUnread := r.Unread("Leases")
	switch {
	case m.State == Silent:
		w.no("%s owns slot %d, but its Lease expired %s ago; others take its slots within "+
			"seconds, and work on them after FenceDelay", m.ID, n, ago(-*m.Left))
	case m.State == Stopped:
		w.no("%s owns slot %d and has stopped, because it could not renew its Lease in time; it resumes once it can",
			m.ID, n)
	case leasesUnread:
		w.unknown("%s owns slot %d, but it is unknown whether it renews its Lease: %s", m.ID, n, inOneLine(reason))
	case m.Renewed == nil:
		w.no("%s owns slot %d and has no Lease; others take its slots after a lease", m.ID, n)
	case r.Reports[m.ID] != nil && r.Reports[m.ID].Waits != "":
		w.no("%s owns slot %d, but %s", m.ID, n, strings.Replace(r.Reports[m.ID].Waits, "this member", "it", 1))
	case run.Unsettled:
		w.no("%s", r.activatingText(run))
	}
	r.noteLate(w, m)
	if age, is := r.Stale[m.ID]; is {
		w.unknown("%s owns slot %d, and last reported what it works on %s ago", m.ID, n, ago(age.Seconds()))
	} else if report := r.Reports[m.ID]; report == nil {
		w.note("%s does not report what it works on; this is from the table alone", m.ID)
	} else if w.Works == WorksYes && !report.Open.Has(p.slot) && reportedBefore(report, run) {
		w.note("%s received slot %d after its last report, so this is from the table", m.ID, n)
	} else if !report.Open.Has(p.slot) && w.Works == WorksYes && w.Move == nil {
		text := "%s owns slot %d, but does not work on it according to its last report"
		if slices.ContainsFunc(w.Problems, func(p Problem) bool { return p.What == SlotClosed }) {
			w.no(text+", and has not for long: restart it", m.ID, n)
		} else {
			w.unknown(text+"; reports come every few seconds, so ask again", m.ID, n)
		}
	} else if age := report.Waiting[p.slot]; age > 0 {
		w.note("the oldest key of slot %d has been waiting for a worker for %s", n, ago(age.Seconds()))
		for _, b := range report.Blocked {
			w.note("hanging reconciles keep all workers of controller %s busy", b.Controller)
		}
	}
}

// namedSlots matches the slots in a warning.
var namedSlots = regexp.MustCompile(`\bslots? ([0-9]+(?:[-, ]+[0-9]+)*)`)

func slotsIn(message string) (set slot.Set) {
	for _, found := range namedSlots.FindAllStringSubmatch(message, -1) {
		some, _ := slot.ParseSet(strings.Join(strings.Fields(strings.ReplaceAll(found[1], ",", " ")), ","))
		set = set.Union(some)
	}
	return set
}

// ReportsAfter reports whether a member's report was made after it opened slots that it got at an epoch. If such a
// report does not list the slots as open, the member has stopped working on them.
func (r *Rota) ReportsAfter(member string, epoch uint64) bool {
	report := r.Reports[member]
	since := func(h coverage.Handover) bool { return h.Epoch >= epoch }
	return report != nil && slices.ContainsFunc(report.Handovers, since)
}

// reportedBefore reports whether a report was made before the member began to work on slots that it got. Such a report
// does not cover the handover.
func reportedBefore(report *coverage.Report, run table.Run) bool {
	return !slices.ContainsFunc(report.Handovers, func(h coverage.Handover) bool { return h.Epoch >= run.Epoch })
}

// activatingText describes what the new owner of a slot waits for.
func (r *Rota) activatingText(run table.Run) string {
	text := fmt.Sprintf("%s has just received slot %d and starts soon: ", run.Owner, run.Slots.First)
	switch r.Table.Notes[run.Epoch].Cause {
	case table.CauseExpelled:
		return text + "it waits for FenceDelay, during which late writes of the former owner may still arrive"
	case table.CauseHanded:
		return text + "it waits until it sees the last writes of the former owner"
	default:
		return text + "it lists the objects"
	}
}

// A member is late if it has not renewed its Lease for lateAfter retry periods.
const lateAfter = 3

// noteLate adds a note if a member is late: it may be dead, and other members cannot know yet.
func (r *Rota) noteLate(w *Who, m Member) {
	retry, lease := 2*time.Second, m.Lease
	if report := r.Reports[m.ID]; report != nil {
		if d, err := time.ParseDuration(report.Setup[coverage.SettingRetry]); err == nil && d > 0 {
			retry = d
		}
	}
	if m.Left == nil || *m.Left < 0 || lease-*m.Left < lateAfter*retry.Seconds() {
		return
	}
	w.Late = ptr.To(lease - *m.Left)
	w.note("%s normally renews its Lease every %v; if it does not do so within %s, others take its slots", m.ID, retry,
		ago(*m.Left))
}

// judgeDelivery checks how the object reaches the slot's owner, and whether the owner holds it.
func (r *Rota) judgeDelivery(w *Who, about subject, p place, exist listed) {
	report := r.Reports[w.Member]
	if report == nil {
		return
	}
	if _, reads := report.Digests[about.kind]; !reads {
		w.no("%s owns slot %d but does not shard kind %s: its build may be older during a rollout; otherwise no informer "+
			"of the kind is running", w.Member, p.slot, about.kind)
		return
	}
	w.Delivery = p.roles.Delivery().String()
	w.Dispatched = slices.Contains(strings.Split(report.Setup[coverage.SettingDispatched], ","), about.kind.String())
	if about.object == nil {
		r.noteDeletion(w, about, p)
		return
	}
	for label, value := range p.roles.Stamps(about.kind, about.object) {
		w.Label, w.LabelValue, w.LabelHas = label, value, about.object.Labels[label]
	}
	r.judgeHeld(w, about, p, report, exist)
	switch wrong := w.Label != "" && w.LabelHas != w.LabelValue; {
	case w.Held != nil && *w.Held:
		if refused := r.unlabelled(about.kind); wrong && refused != nil {
			w.note("the API server rejects labels of the kind, so members get all its objects: %s", refused.Error)
		}
	case wrong && w.LabelHas == "":
		w.no("it does not have the label %s=%s, by which %s selects; %s", w.Label, w.LabelValue, w.Member,
			r.labellerText(about))
	case wrong:
		w.no("its label %s is %s but should be %s, by which %s selects; %s", w.Label, w.LabelHas, w.LabelValue, w.Member,
			r.labellerText(about))
	case w.Held != nil && w.Works == WorksYes:
		w.no("%s owns slot %d but does not hold it: %s", w.Member, p.slot, leftOut)
	}
}

const leftOut = "its informers' label selector, field selector or namespaces exclude it. If it was just changed, " +
	"it may arrive soon: try again"

// labellerText describes who corrects labels.
func (r *Rota) labellerText(about subject) string {
	if refused := r.unlabelled(about.kind); refused != nil {
		return "the API server rejects such labels, so members get all objects of the kind within seconds: " +
			refused.Error
	}
	for _, d := range r.Duties {
		if d.Name == table.OwnDuties+"label/"+about.kind.String() && d.Owner != "" {
			return d.Owner + " labels the kind and corrects it within seconds; its log shows if it cannot"
		}
	}
	return "no member labels the kind, so the object's writers must: see docs/controller-runtime.md#labels"
}

// noteDeletion adds a note if the slot's owner is about to reconcile the deletion of a missing object.
func (r *Rota) noteDeletion(w *Who, about subject, p place) {
	for _, g := range r.Table.Gone {
		if g.Slot == p.slot && g.Kind == about.kind.String() && g.Namespace == about.namespace && g.Name == about.name {
			w.note("it was deleted while its slot moved, and %s is about to reconcile the deletion", w.Member)
		}
	}
}

// ago formats seconds for a sentence.
func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// inOneLine replaces line breaks with spaces.
func inOneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// oneLine returns an error's text without the lines of a manifest.
func oneLine(err error) string {
	line, _, _ := strings.Cut(errors.Join(err).Error(), "\n")
	return line
}

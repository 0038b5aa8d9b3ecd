package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/table"
)

const (
	// maxWarnings limits the current warnings that become lines, the newest first.
	maxWarnings = 10
	// scrubDuty is the duty that compares the members' objects with the existing ones.
	scrubDuty = table.OwnDuties + "scrub"
)

// groupOf maps problems of package view to groups. Other problems are about members or slots.
var groupOf = map[string]string{
	view.OldCopy: groupTable, view.SlotUnowned: groupSlots, view.SlotClosed: groupSlots, view.MoveStuck: groupSlots,
	view.DutyUnowned: groupDuties, view.ReportMissing: groupCoverage, view.MemberSilent: groupMembers,
	view.MemberStopped: groupMembers, view.LeaseMissing: groupMembers, view.Probation: groupMembers,
	view.KeyWaiting: groupMembers, view.SetupClash: groupMembers,
	view.NotElected: groupMembers, view.KindNotServed: groupCoverage, view.KindRefused: groupCoverage,
	view.LabelsRefused: groupDelivery,
	view.SlotHeldBack:  groupSlots,
	view.KeyHangs:      groupObjects, view.KeyFails: groupObjects, view.KeyKills: groupObjects,
	view.NoRoom: groupSlots, view.NoSpareMemory: groupMembers,
	view.PinUnmet: groupSlots, view.CanaryWaits: groupMembers, view.CanaryBack: groupMembers,
	view.MovesPaused: groupSlots, view.MemberDrained: groupMembers,
}

// rota checks the rota.
func (r *run) rota(ctx context.Context, v *view.Rota) {
	r.learn(v)
	var pods []string
	for _, m := range v.Members {
		pods = append(pods, m.Pod)
	}
	r.accountOf(ctx, pods)
	for _, u := range v.Unknown {
		group := map[string]string{"reports": groupCoverage, "kinds": groupCoverage, "warnings": groupEvents,
			"fence": groupFence}[u.What]
		r.unknown(cmp.Or(group, groupMembers), u.What, errors.New(u.Error))
	}
	for _, p := range v.Problems {
		r.problem(p)
	}
	for _, line := range coverage.Bookmarkless(maps.Values(v.Reports)) {
		r.warn(groupDelivery, codeBookmarks, "make the proxy in front of the API server pass watches through unchanged", "%s",
			line)
	}
	r.table(ctx, v)
	if r.found(groupTable, view.OldCopy) {
		return // the rest of the table is wrong
	}
	r.members(v)
	r.slots(v)
	if v.Shadow != nil {
		r.good(groupMembers, codeShadow, "%s", view.ShadowText)
		return // there is nothing to cover or fence
	}
	r.coverage(v)
	r.fence(ctx, v)
}

// unreadable adds a failure if the rota's table cannot be read or is gone. It returns false if err is something else.
func (r *run) unreadable(err error) bool {
	switch {
	case errors.Is(err, view.ErrNewer):
		r.fail(groupTable, codeNewer, "do not delete the table: members work with it. Use the command rota of the "+
			"operator's release", "%s", oneLine(err))
	case errors.Is(err, view.ErrTable):
		r.fail(groupTable, codeInvalid, fmt.Sprintf("undo the edit, or make the members create a new table, which "+
			"takes a lease: kubectl delete configmap -n %s %s", r.Rota.Namespace, r.Rota.Name), "%s", oneLine(err))
	case errors.Is(err, view.ErrTableLost):
		r.fail(groupTable, codeLost, "try again after a lease (15 s). If there is still none, look at the members' logs; "+
			"if it was deleted, keep the ConfigMap away from tools that prune", "%s", oneLine(err))
	default:
		return false
	}
	return true
}

// learn takes kinds, delivery and leader elections from the members' reports, in addition to the given kinds.
func (r *run) learn(v *view.Rota) {
	primary, owned := map[schema.GroupKind]bool{}, map[schema.GroupKind]bool{}
	for _, kind := range r.Kinds {
		primary[kind] = true
	}
	for _, kind := range r.Owned {
		owned[kind] = true
	}
	r.key = v.Table.Key
	r.dispatches = len(v.Reports) > 0
	for _, report := range v.Reports {
		r.dispatches = r.dispatches && report.Setup[coverage.SettingDispatched] != ""
		for kind := range report.Digests {
			if len(report.Owners[kind]) > 0 {
				owned[kind] = true
			} else {
				primary[kind] = true
			}
		}
		if mode, err := sharding.ParseMode(report.Setup[coverage.SettingDelivery]); err == nil {
			r.Delivery = max(r.Delivery, mode)
		}
		r.Label = r.Label || report.Setup[coverage.SettingLabel] == "true"
		namespace, name, ok := strings.Cut(report.Setup[coverage.SettingElection], "/")
		if lease := (types.NamespacedName{Namespace: namespace, Name: name}); ok && !slices.Contains(r.Elections, lease) {
			r.Elections = append(r.Elections, lease)
		}
	}
	byName := func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) }
	r.Kinds = slices.SortedFunc(maps.Keys(primary), byName)
	r.Owned = slices.SortedFunc(maps.Keys(owned), byName)
}

// problem adds a problem of package view. Its message includes the cure.
func (r *run) problem(p view.Problem) {
	group, ok := groupOf[p.What]
	switch {
	case ok:
	case p.Member != "":
		group = groupMembers
	default:
		group = groupSlots
	}
	l := Line{Level: Failed, Code: p.What, Text: p.Message, Slots: p.Slots, Member: p.Member}
	if p.Severity == view.Warn {
		l.Level = Warning
	}
	r.add(group, l)
}

func (r *run) table(ctx context.Context, v *view.Rota) {
	if !r.found(groupTable) {
		r.good(groupTable, codeInvalid, "the table is valid: epoch %d, %d slots by %s, %d members", v.Epoch, v.Slots, v.Key,
			len(v.Members))
	}
	cm, err := r.client.CoreV1().ConfigMaps(r.Rota.Namespace).Get(ctx, r.Rota.Name, metav1.GetOptions{})
	if err != nil {
		r.unknown(groupTable, "whether a tool may prune the table", err)
		return
	}
	if tool := prunedBy(cm); tool != "" {
		r.warn(groupTable, codePruned, "take the ConfigMap out of Git and charts, and make the tool ignore it: see "+
			"docs/operations.md, \"Tools that prune, back up and restore\"", "%s may delete the table, or replace it with "+
			"an old copy: the ConfigMap has its marks", tool)
		return
	}
	r.good(groupTable, codePruned, "no tool that prunes has marked the ConfigMap as its own")
}

// prunedBy returns the tool that has marked an object as its own, unless the object opts out of pruning.
func prunedBy(obj metav1.Object) string {
	marks := map[string]string{}
	maps.Copy(marks, obj.GetLabels())
	maps.Copy(marks, obj.GetAnnotations())
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, ok := marks[name]; return ok })
	}
	switch {
	case has("argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance") &&
		!strings.Contains(marks["argocd.argoproj.io/sync-options"], "Prune=false"):
		return "Argo CD"
	case has("kustomize.toolkit.fluxcd.io/name") && marks["kustomize.toolkit.fluxcd.io/prune"] != "disabled",
		has("helm.toolkit.fluxcd.io/name"):
		return "Flux"
	case has("meta.helm.sh/release-name") && marks["helm.sh/resource-policy"] != "keep":
		return "Helm"
	case len(obj.GetOwnerReferences()) > 0:
		return "the garbage collector"
	default:
		return ""
	}
}

func (r *run) members(v *view.Rota) {
	if len(v.Members) == 0 {
		return
	}
	if !r.found(groupMembers, view.MemberSilent, view.MemberStopped, view.LeaseMissing, codeUnknown) {
		r.good(groupMembers, view.MemberSilent, "every member renews its Lease (%d)", len(v.Members))
	}
	skewed, compared := false, 0
	for _, m := range v.Members {
		if m.ClockAhead == nil {
			continue
		}
		compared++
		if ahead := time.Duration(*m.ClockAhead * float64(time.Second)); ahead.Abs() > maxSkew {
			skewed = true
			r.add(groupMembers, Line{Level: Warning, Code: codeClock, Member: m.ID, Text: "the clock of its machine is " +
				aheadText(ahead) + " the API server's", Cure: "synchronize it. It never makes two members work on one object, " +
				"but displayed ages and deadlines are off by that much"})
		}
	}
	if !skewed && compared == len(v.Members) {
		r.good(groupMembers, codeClock, "their clocks agree with the API server's")
	}
	r.alike(v)
}

func (r *run) alike(v *view.Rota) {
	for _, d := range v.Differences {
		r.warn(groupMembers, codeSetup, "a rollout causes this until it ends. If there is none, give them the same settings",
			"%s", d)
	}
	if names, members := grouped(v, workloadOf(v)); len(names) > 1 {
		r.warn(groupMembers, codeWorkloads, "two operators with the same rota name do not see all objects: give one of them "+
			"another Options.Name. If they belong together, as a canary does, give them the same Identity.Workload",
			"members belong to %d workloads: %s", len(names), members)
	}
	if builds, members := grouped(v, func(m view.Member) string { return m.Build }); len(builds) > 1 {
		youngest := youngestOf(v.Members)
		switch {
		case v.Canary != nil && v.Canary.State == view.Running && len(builds) == 2:
			r.good(groupMembers, codeBuilds, "there is a canary: %s", members)
		case r.found(groupMembers, view.SetupClash, codeWorkloads): // a rollout does not cause that
		case v.At.Sub(youngest) <= coverage.RolloutQuiet:
			r.good(groupMembers, codeBuilds, "a rollout is under way: %s", members)
		default:
			r.warn(groupMembers, codeBuilds, "finish the rollout, or undo it: kubectl rollout status",
				"members run %d builds, and none has joined for %s: %s", len(builds), v.At.Sub(youngest).Round(time.Minute),
				members)
		}
	}
	if !r.found(groupMembers, codeSetup, codeWorkloads, codeBuilds, view.SetupClash) && len(v.Reports) == len(v.Members) {
		r.good(groupMembers, codeSetup, "they have the same kinds and options")
	}
}

func workloadOf(v *view.Rota) func(view.Member) string {
	return func(m view.Member) string {
		if report := v.Reports[m.ID]; report != nil {
			return report.Setup[coverage.SettingWorkload]
		}
		return ""
	}
}

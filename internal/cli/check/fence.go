package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/coverage"
)

// fenceTimeout bounds the dry run.
const fenceTimeout = 5 * time.Second

// fence checks the rota's fence, if it has one, and tries it with a dry run.
func (r *run) fence(ctx context.Context, v *view.Rota) {
	if unknownIn(v, "fence") {
		return // reported as unknown
	}
	state := v.FenceState
	command := fmt.Sprintf("rota fence %s -n %s --service-account ", r.Rota.Name, r.Rota.Namespace)
	apply := command + "NAMESPACE/NAME --resource GROUP/RESOURCE --apply"
	annotate := fmt.Sprintf("kubectl annotate configmap -n %s %s %s", r.Rota.Namespace, r.Rota.Name, fence.Annotation)
	switch {
	case len(state.Resources) == 0:
		r.warn(groupFence, codeNoFence, apply, "there is no fence: a late write of a replica that was paused can be accepted")
		return
	case !state.Denies:
		r.warn(groupFence, codeFenceOff, apply, "%s", state)
		return
	case state.Off:
		r.warn(groupFence, codeFenceOff, "turn it on again: "+annotate+"-", "%s", state)
		return
	}
	options, outdated, err := fence.Installed(ctx, r.cfg, r.Rota)
	if err != nil {
		r.unknown(groupFence, "whether the fence is from this release", err)
		return
	}
	again := command + options.ServiceAccount.String() + resourceFlags(options.Resources) + " --apply"
	if len(outdated) > 0 {
		r.warn(groupFence, codeFenceOld, again, "the fence is not from this release: %s", strings.Join(outdated, ", "))
	}
	r.fenced(v, options)
	r.impersonated(v)
	r.fenceKinds(options, command)
	if r.found(groupFence, codeFenceMember, codeFenceOld) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	switch err := fence.Verify(ctx, r.cfg, options); {
	case err == nil:
		r.good(groupFence, codeFenceBlind, "the API server rejects writes from processes that are not members, and has the "+
			"current table")
	case errors.Is(err, fence.ErrUnverified):
		r.good(groupFence, codeFenceOff, "%s (not tried: %s)", state, oneLine(err))
	default:
		r.fail(groupFence, codeFenceBlind, "take the fence down: kubectl delete validatingadmissionpolicybinding "+
			options.ObjectName()+". Then restart that API server, and apply the fence again: "+again, "%s", oneLine(err))
	}
}

func resourceFlags(resources []schema.GroupResource) string {
	var b strings.Builder
	for _, g := range resources {
		text := g.Resource
		if g.Group != "" {
			text = g.Group + "/" + text
		}
		b.WriteString(" --resource " + text)
	}
	return b.String()
}

// impersonated warns about members that write as other users, which the fence does not cover.
func (r *run) impersonated(v *view.Rota) {
	for _, line := range coverage.Impersonated(maps.Values(v.Reports)) {
		r.warn(groupFence, codeFenceOthers, "write as the Pods' own ServiceAccount, if late writes matter", "%s", line)
	}
}

// fenced warns about members that the fence rejects or does not cover.
func (r *run) fenced(v *view.Rota, o fence.Options) {
	for _, m := range v.Table.Members {
		if m.PodUID == "" {
			r.add(groupFence, Line{Level: Failed, Code: codeFenceMember, Member: m.ID,
				Text: "it does not report the UID of its Pod, so the fence rejects all its writes",
				Cure: "set POD_UID through the downward API (fieldPath: metadata.uid), and roll that out"})
		}
	}
	if !r.Self && r.Account.Name != "" && r.Account != o.ServiceAccount {
		r.warn(groupFence, codeFenceMember, "apply the fence for the ServiceAccount that the members use",
			"the fence is for ServiceAccount %s, but the operator uses %s: its writes are not fenced", o.ServiceAccount,
			r.Account)
	}
}

// fenceKinds warns about sharded kinds that are not fenced.
func (r *run) fenceKinds(o fence.Options, command string) {
	var open []schema.GroupResource
	for _, kind := range slices.Concat(r.Kinds, r.Owned) {
		mapping, err := r.mapper.RESTMapping(kind)
		if err != nil {
			continue // reported by permissions
		}
		if g := mapping.Resource.GroupResource(); !slices.Contains(o.Resources, g) && !slices.Contains(open, g) {
			open = append(open, g)
		}
	}
	if len(open) == 0 {
		return
	}
	all := command + o.ServiceAccount.String() + resourceFlags(slices.Concat(o.Resources, open)) + " --apply"
	var names []string
	for _, g := range open {
		names = append(names, g.String())
	}
	r.warn(groupFence, codeFenceKinds, "if members write them: "+all, "sharded kinds without a fence: %s",
		strings.Join(names, ", "))
}

package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/rota-dev/rota/internal/cli/serving"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// deliveries reports the possible delivery modes, and the labels that members write.
func (r *run) deliveries(ctx context.Context) {
	r.labelNames()
	shards, err := serving.Shards(ctx, r.client.CoreV1().RESTClient(), r.Rota.Namespace)
	why := "the API server ignores shard selectors: that takes Kubernetes 1.36 and the feature gate ShardedListAndWatch"
	switch {
	case err != nil:
		why = "it is unknown whether the API server honors shard selectors: " + oneLine(err)
	case shards:
		why = ""
	}
	mayLabel := !r.found(groupPermissions)
	if r.Delivery == sharding.ShardSelector && why != "" {
		r.warn(groupDelivery, codeDelivery, "turn the feature gate on, or use delivery SlotLabel; until then each member "+
			"receives all objects, as with Filter", "delivery ShardSelector: %s", why)
	}
	if r.labelsAny() && !mayLabel && r.cannotPatch() {
		r.fail(groupDelivery, codeDelivery, "add the rules above. Until then members exit at startup, and objects "+
			"without a label reach no member",
			"delivery %s: the operator may not write the labels by which objects are delivered", r.Delivery)
	}
	if r.found(groupDelivery) {
		return
	}
	possible := []string{"Filter"}
	if len(r.Kinds) == 0 || !r.labelsAny() {
		possible = append(possible, "SlotLabel (with the permission to patch objects)")
	} else {
		possible = append(possible, "SlotLabel")
	}
	text := "possible here: " + strings.Join(possible, ", ")
	if why == "" {
		text += ", ShardSelector"
	} else {
		text += "; not ShardSelector: " + why
	}
	if r.Delivery != sharding.ModeUnknown {
		text = fmt.Sprintf("delivery is %s; %s", r.Delivery, text)
	}
	r.good(groupDelivery, codeDelivery, "%s", text)
}

// labelNames adds a line for each kind with its delivery label.
func (r *run) labelNames() {
	if r.Pre && r.Delivery == sharding.ShardSelector {
		r.key = slot.KeyUID // the default of rota.New
	}
	for _, kind := range r.Kinds {
		if label := sharding.HashLabel(r.key, kind); label != "" && r.labels(kind) {
			r.good(groupDelivery, codeDelivery, "%s has the label %s", kind, label)
		}
	}
	for _, kind := range r.Owned {
		if r.labels(kind) {
			r.good(groupDelivery, codeDelivery, "%s has the label %s, if its owner is sharded", kind,
				sharding.OwnerLabel(r.key, kind))
		}
	}
}

// labelsAny reports whether members write labels on any kind.
func (r *run) labelsAny() bool {
	for _, kind := range append(r.Kinds[:len(r.Kinds):len(r.Kinds)], r.Owned...) {
		if r.labels(kind) {
			return true
		}
	}
	return false
}

func (r *run) cannotPatch() bool {
	for _, l := range r.lines[groupPermissions] {
		if l.Level == Failed && l.Code == codePermission && strings.Contains(l.Cure, `"patch"`) {
			return true
		}
	}
	return false
}

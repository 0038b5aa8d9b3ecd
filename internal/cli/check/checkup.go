// Package check examines a cluster and a rota, and reports what is good, what is wrong, and what to do. `rota check`
// prints the result. Problems of a rota come from package view, so that all commands agree.
package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Page has a section for each code.
const Page = "https://github.com/rota-dev/rota/blob/main/docs/troubleshooting.md"

// Level is the outcome of a check.
type Level string

// Levels, from good to bad.
const (
	// OK: as it should be.
	OK Level = "ok"
	// Warning: something may go wrong, or could not be checked. It does not fail the check.
	Warning Level = "warning"
	// Failed: something does not work, or will not.
	Failed Level = "failed"
)

// Line is one result of a check.
type Line struct {
	Level Level `json:"level"`
	// Code is the name of a section of docs/troubleshooting.md, and Link its address.
	Code string `json:"code"`
	Link string `json:"link"`
	// Text is the finding. Cure is what to do, unless Text includes it; it may have several lines.
	Text string `json:"text"`
	Cure string `json:"cure,omitempty"`
	// Slots and Member are what the finding is about. Either may be empty.
	Slots  string `json:"slots,omitempty"`
	Member string `json:"member,omitempty"`
}

// Group contains the checks of one area.
type Group struct {
	Name  string `json:"name"`
	Lines []Line `json:"checks"`
}

// Result is the result of one run. Its JSON is the output of `rota check -o json`: fields are added, but never renamed
// or removed.
type Result struct {
	// Namespace and Name are the rota's. Name is empty for a check before the installation without a name.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// At is when it was read, by this machine's clock.
	At     time.Time `json:"at"`
	Groups []Group   `json:"groups"`
	// Warnings and Failed count the lines of these levels.
	Warnings int `json:"warnings"`
	Failed   int `json:"failed"`
}

// Groups in the order of the output.
const (
	groupCluster     = "cluster"
	groupPermissions = "permissions"
	groupDelivery    = "delivery"
	groupTable       = "table"
	groupMembers     = "members"
	groupSlots       = "slots"
	groupDuties      = "duties"
	groupObjects     = "objects"
	groupCoverage    = "coverage"
	groupFence       = "fence"
	groupEvents      = "warnings of the last hour"
)

var groups = []string{groupCluster, groupPermissions, groupDelivery, groupTable, groupMembers, groupSlots, groupDuties,
	groupObjects, groupCoverage, groupFence, groupEvents}

// Codes of checks that are neither problems of package view nor event reasons. Those keep their names.
const (
	codeVersion     = "ClusterVersion"
	codeUntried     = "VersionUntried"
	codeLacks       = "ServerLacks"
	codeAccess      = "AccessUnknown"
	codeDelivery    = "DeliveryImpossible"
	codeName        = "NameTaken"
	codeInvalid     = "TableInvalid"
	codeNewer       = "TableNewer"
	codePruned      = "TablePruned"
	codeBuilds      = "BuildsDiffer"
	codeWorkloads   = "TwoWorkloads"
	codeNoFence     = "FenceMissing"
	codeFenceOff    = "FenceOff"
	codeFenceKinds  = "FenceKinds"
	codeFenceOld    = "FenceOutdated"
	codeFenceMember = "FenceMember"
	codeFenceBlind  = "FenceBlind"
	codeFenceOthers = "FenceImpersonated"
	codeUnknown     = "NotKnown"
	codeShadow      = "Shadow"
	codeEarlier     = "EarlierWarnings"
	codeWebhook     = "WebhookWaits"
	codeSlowWebhook = "WebhookSlow"
	codeBookmarks   = "BookmarksDropped"
)

// Codes that are also event reasons.
const (
	codeClock      = "ClockSkew"
	codePermission = "PermissionMissing"
	codeLost       = "TableLost"
	codeSetup      = "SetupDiffers"
	codeCoverage   = "Coverage"
)

// Codes returns the codes of lines, without the problems of package view.
func Codes() []string {
	return []string{codeVersion, codeUntried, codeLacks, codeAccess, codeDelivery, codeName, codeInvalid, codeNewer,
		codePruned, codeBuilds, codeWorkloads, codeNoFence, codeFenceOff, codeFenceKinds,
		codeFenceOld, codeFenceMember,
		codeFenceBlind, codeFenceOthers, codeUnknown, codeShadow, codeEarlier, codeWebhook, codeSlowWebhook, codeClock,
		codePermission, codeLost, codeSetup, codeBookmarks, codeCoverage}
}

// Options configures Run. Rota.Name may be empty with Pre.
type Options struct {
	Rota types.NamespacedName
	// Pre only checks the cluster, before anything is installed.
	Pre bool
	// Account is the operator's ServiceAccount, whose permissions are checked. It defaults to the members' Pods'. Self
	// checks the user of the rest.Config instead.
	Account types.NamespacedName
	Self    bool
	// Kinds are sharded by their own keys, and Owned by their owners. Delivery and Label are the options of those names.
	// If members report, all of these come from their reports.
	Kinds, Owned []schema.GroupKind
	Delivery     sharding.Mode
	Label        bool
	// Namespaces are the namespaces that informers watch. Empty means all.
	Namespaces []string
	// Elections are the Leases of stock leader elections that members hold for the rota (rule R20), in addition to those
	// in the members' reports.
	Elections []types.NamespacedName
	// Wait is how long to wait for slots that move or are closed. It is only a problem if that lasts.
	Wait time.Duration
	// Longer extends Wait while slots are closed until it is certain whether that is a problem: for the longest
	// LeaseDuration and FenceDelay in the members' reports.
	Longer bool
}

// timeout bounds the requests of each part: the cluster, each read of the rota, and the rest.
const timeout = time.Minute

// run is the state of one check.
type run struct {
	Options
	cfg    *rest.Config
	client kubernetes.Interface
	mapper meta.RESTMapper
	lines  map[string][]Line // by group
	first  time.Time         // when the rota was first read
	closed map[view.Closure]time.Time
	// dispatches is true if all reporting members hand out their keys to workers, and reconcile nothing themselves.
	dispatches bool
	live       []schema.GroupResource // resources that members may read live
	key        slot.Key               // the rota's, or the default if there is no rota yet
}

// Run runs the checks. It returns an error if no server answers, the rota does not exist, or the table may not be read.
func Run(ctx context.Context, cfg *rest.Config, o Options) (*Result, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	r := &run{Options: o, cfg: cfg, client: client, mapper: mapper, lines: map[string][]Line{}, key: slot.KeyName}
	part := func(look func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return look(ctx)
	}
	if err := part(r.cluster); err != nil {
		return nil, err
	}
	var v *view.Rota
	if !o.Pre {
		if v, err = r.look(ctx); err != nil && !r.unreadable(err) {
			return nil, err
		}
	}
	err = part(func(ctx context.Context) error {
		if o.Pre {
			r.features(ctx)
			r.free(ctx)
			hooks := sync.OnceValues(func() ([]admission, error) { return r.admissionWebhooks(ctx) })
			r.webhooks(ctx, hooks)
			r.slowWebhooks(hooks)
		} else if v != nil {
			r.rota(ctx, v)
		}
		r.permissions(ctx)
		r.deliveries(ctx)
		if v != nil {
			r.events(v)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	return r.result(), nil
}

func (r *run) result() *Result {
	out := &Result{Namespace: r.Rota.Namespace, Name: r.Rota.Name, At: time.Now(), Groups: []Group{}}
	for _, name := range groups {
		if len(r.lines[name]) == 0 {
			continue
		}
		out.Groups = append(out.Groups, Group{name, r.lines[name]})
		for _, l := range r.lines[name] {
			switch l.Level {
			case Warning:
				out.Warnings++
			case Failed:
				out.Failed++
			case OK:
			}
		}
	}
	return out
}

func (r *run) add(group string, l Line) {
	l.Link = Page + "#" + strings.ToLower(l.Code)
	r.lines[group] = append(r.lines[group], l)
}

func (r *run) good(group, code, text string, args ...any) {
	r.add(group, Line{Level: OK, Code: code, Text: fmt.Sprintf(text, args...)})
}

func (r *run) warn(group, code, cure, text string, args ...any) {
	r.add(group, Line{Level: Warning, Code: code, Text: fmt.Sprintf(text, args...), Cure: cure})
}

func (r *run) fail(group, code, cure, text string, args ...any) {
	r.add(group, Line{Level: Failed, Code: code, Text: fmt.Sprintf(text, args...), Cure: cure})
}

// found reports whether a group has a warning or a failure with one of the codes, or any if there are no codes.
func (r *run) found(group string, codes ...string) bool {
	return slices.ContainsFunc(r.lines[group], func(l Line) bool {
		return l.Level != OK && (len(codes) == 0 || slices.Contains(codes, l.Code))
	})
}

// oneLine returns an error's text without line breaks.
func oneLine(err error) string { return oneLineText(err.Error()) }

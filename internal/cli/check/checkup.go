// Package check looks at a cluster and a rota, and says what is good, what is not, and what to do about it. `rota
// check` prints what it finds. What is wrong with a rota it takes from package view, so that all commands agree.
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

// Page is where each code has a section.
const Page = "https://github.com/rota-dev/rota/blob/main/docs/troubleshooting.md"

// Level says how a check ended.
type Level string

// Levels, from good to bad.
const (
	// OK: as it should be.
	OK Level = "ok"
	// Warning: something may go wrong, or could not be looked at. It does not fail the check.
	Warning Level = "warning"
	// Failed: something does not work, or will not.
	Failed Level = "failed"
)

// Line is the outcome of one check.
type Line struct {
	Level Level `json:"level"`
	// Code names the section of docs/troubleshooting.md, and Link is its address.
	Code string `json:"code"`
	Link string `json:"link"`
	// Text says what was found. Cure says what to do, unless Text does; it may have several lines.
	Text string `json:"text"`
	Cure string `json:"cure,omitempty"`
	// Slots and Member are what it is about. Either may be empty.
	Slots  string `json:"slots,omitempty"`
	Member string `json:"member,omitempty"`
}

// Group has the checks of one part.
type Group struct {
	Name  string `json:"name"`
	Lines []Line `json:"checks"`
}

// Result is what one run found. Its JSON is what `rota check -o json` prints: fields are added, but neither renamed nor
// removed.
type Result struct {
	// Namespace and Name are those of the rota. Name is empty if no rota was given before there is one.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// At is when it was read, by this machine's clock.
	At     time.Time `json:"at"`
	Groups []Group   `json:"groups"`
	// Warnings and Failed count the lines of these levels.
	Warnings int `json:"warnings"`
	Failed   int `json:"failed"`
}

// Groups, in the order in which they are printed.
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

// Codes of checks that are neither problems of package view nor reasons of events. Those keep their names.
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

// Codes that are also reasons of events.
const (
	codeClock      = "ClockSkew"
	codePermission = "PermissionMissing"
	codeLost       = "TableLost"
	codeSetup      = "SetupDiffers"
	codeCoverage   = "Coverage"
)

// Codes returns the codes of lines, without problems of package view.
func Codes() []string {
	return []string{codeVersion, codeUntried, codeLacks, codeAccess, codeDelivery, codeName, codeInvalid, codeNewer,
		codePruned, codeBuilds, codeWorkloads, codeNoFence, codeFenceOff, codeFenceKinds,
		codeFenceOld, codeFenceMember,
		codeFenceBlind, codeFenceOthers, codeUnknown, codeShadow, codeEarlier, codeWebhook, codeSlowWebhook, codeClock,
		codePermission, codeLost, codeSetup, codeBookmarks, codeCoverage}
}

// Options say what to look at. Name of Rota may be empty with Pre.
type Options struct {
	Rota types.NamespacedName
	// Pre looks at the cluster only, before anything is installed.
	Pre bool
	// Account is the ServiceAccount of the operator, whose permissions are looked at. Zero: that of the members' Pods.
	// Self: the user of the rest.Config is looked at instead.
	Account types.NamespacedName
	Self    bool
	// Kinds and Owned are the kinds that are sharded by their own keys and by their owners, Delivery and Label the options
	// of those names. They are what members report, if there are members that report.
	Kinds, Owned []schema.GroupKind
	Delivery     sharding.Mode
	Label        bool
	// Namespaces are those to which informers are limited. Empty: none.
	Namespaces []string
	// Elections are the Leases of stock leader elections that members hold for the rota (rule R20), beside those that
	// members report.
	Elections []types.NamespacedName
	// Wait is for how long to go on looking while slots move, or are closed: only if that lasts, it is a problem.
	Wait time.Duration
	// Longer makes that longer while slots are closed, if Wait is too short to tell whether that is a problem: it is one
	// after the longest LeaseDuration and FenceDelay that members report.
	Longer bool
}

// timeout bounds the requests of each part of a checkup: the cluster, each look at the rota, and the rest.
const timeout = time.Minute

// run is one checkup.
type run struct {
	Options
	cfg    *rest.Config
	client kubernetes.Interface
	mapper meta.RESTMapper
	lines  map[string][]Line // by group
	first  time.Time         // the time of the first look at the rota
	closed map[view.Closure]time.Time
	// dispatches: all members that report hand their keys out to workers, and reconcile nothing themselves.
	dispatches bool
	live       []schema.GroupResource // of what members may read live
	key        slot.Key               // the rota's, or the default if there is no rota yet
}

// Run looks. The error says why it could not: no server answers, there is no such rota, or the table may not be read.
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
			r.lacks(ctx)
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

// found reports whether a group has a warning or a failure with one of the codes; without codes, any.
func (r *run) found(group string, codes ...string) bool {
	return slices.ContainsFunc(r.lines[group], func(l Line) bool {
		return l.Level != OK && (len(codes) == 0 || slices.Contains(codes, l.Code))
	})
}

// oneLine returns an error's text without line breaks.
func oneLine(err error) string { return oneLineText(err.Error()) }

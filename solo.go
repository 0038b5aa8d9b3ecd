package rota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
)

// soloDefaults fills in what Solo needs nobody to say, and refuses it in a Pod.
func (o Options) soloDefaults() (Options, error) {
	if !o.Solo {
		return o, nil
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" && !isTest() {
		return o, errors.New("rota: Options.Solo is set, and this process runs in a Pod and is no test: every replica " +
			"would work on all objects. Leave Solo out where the operator is deployed; it is for tests")
	}
	if o.Delivery == sharding.ShardSelector && o.Key == slot.KeyUnknown {
		o.Key = slot.KeyUID
	}
	// There is nothing to select, and nobody to label for.
	o.Delivery, o.Label = sharding.Filter, false
	o.Name, o.Namespace = cmp.Or(o.Name, "solo"), cmp.Or(o.Namespace, os.Getenv("POD_NAMESPACE"), "default")
	return o, nil
}

// isTest reports whether go test built this program, as testing.Testing does, which would link package testing into
// operators.
func isTest() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && strings.HasSuffix(info.Path, ".test")
}

// newSolo returns a Rota that needs neither table nor Lease. cfg is nil for programs whose clients are fakes.
func newSolo(cfg *rest.Config, opts Options, config member.Config) *Rota {
	r := newRota(cfg, opts, config)
	r.store = soloStore{}
	r.log.Info("This process works on all objects by itself (Options.Solo): no other replica may run")
	return r
}

// soloStore is the store of a rota that shares nothing: there is no table to follow, and nobody reads events. A
// soloMember asks for nothing else.
type soloStore struct{ store.Store }

func (soloStore) WatchTable(ctx context.Context, _ func(member.Snapshot, bool)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (soloStore) Notify(context.Context, member.Notify)    {}
func (soloStore) NotifyNow(context.Context, member.Notify) {}
func (soloStore) Close()                                   {}

var (
	_ replica.Member = (*member.Member)(nil)
	_ replica.Member = (*soloMember)(nil)
)

// soloMember owns all slots as long as it runs. It takes the place of a member.Member.
type soloMember struct {
	table *table.Table
	begun bool
	// shut are slots whose drain is over.
	shut, all slot.Set
}

// newSoloMember returns the member, and the table that tells of it.
func newSoloMember(cfg member.Config, wall time.Time) *soloMember {
	self := cfg.Self
	self.Joined = wall.Unix()
	t := table.New(cfg.Slots, cfg.Key, uint64(max(1, wall.UnixMilli())))
	t.UID, t.Members = self.ID, []table.Member{self}
	for name := range self.DutyNames() {
		t.Duties = append(t.Duties, name)
	}
	s := &soloMember{table: t}
	t.Runs = []table.Run{{Slots: slot.Range{First: 0, Last: slot.Slot(cfg.Slots - 1)}, Owner: self.ID, Epoch: t.Epoch}}
	for n := slot.Slot(cfg.Slots); int(n) < t.Total(); n++ {
		t.Runs = append(t.Runs, table.Run{Slots: slot.Range{First: n, Last: n}, Owner: self.ID, Epoch: t.Epoch})
	}
	s.all.AddRange(slot.Range{First: 0, Last: slot.Slot(t.Total() - 1)})
	return s
}

// Wake is never: nothing here depends on time.
func (*soloMember) Wake() time.Duration { return math.MaxInt64 / 2 }

// Step loads all slots and opens them, and drains them to leave.
func (s *soloMember) Step(_ member.Time, e member.Event) []member.Action {
	switch e := e.(type) {
	case member.Tick:
		if s.begun {
			return nil
		}
		s.begun = true
		duties := map[slot.Slot]string{}
		for i, name := range s.table.Duties {
			duties[slot.Slot(int(s.table.Slots)+i)] = name
		}
		return []member.Action{
			member.Deadline{At: math.MaxInt64 / 2},
			member.Load{Slots: s.all, Round: 1, Cause: table.CauseAssigned, Duties: duties},
		}
	case member.Loaded:
		if e.Round != 1 {
			return nil
		}
		return []member.Action{member.Open{Slots: e.Slots, Epoch: s.table.Epoch}}
	case member.Leave:
		return []member.Action{member.Drain{Slots: s.all, Round: 2}}
	case member.Drained:
		if s.shut = s.shut.Union(e.Slots); s.shut == s.all {
			return []member.Action{member.Stop{}}
		}
	}
	return nil
}

// decide returns what steps for an incarnation.
func (r *Rota) decide() replica.Member {
	if !r.opts.Solo {
		return member.New(r.cfg)
	}
	s := newSoloMember(r.cfg, time.Now())
	r.state.See(member.Snapshot{UID: s.table.UID, Version: "1", Table: s.table})
	return s
}

// checkSolo returns an error for options that Solo does not go with.
func (o Options) checkSolo() error {
	if o.Solo && o.Group != nil {
		return fmt.Errorf("rota %s: Options.Solo and Options.Group: a group needs the other groups; test with one of the two",
			o.Name)
	}
	return nil
}

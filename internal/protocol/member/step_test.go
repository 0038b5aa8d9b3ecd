package member_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// What a script cannot say, since its clocks are those of a world: times to the nanosecond, and the fields of actions.

// after is a time after the one at which a member that renewed returns sent its renewal.
func after(d time.Duration) member.Time {
	return member.Time{Mono: time.Minute + d, Wall: 1_700_000_000}
}

// renewed returns a member that has created its Lease, and nothing more.
func renewed(t *testing.T, cfg member.Config) *member.Member {
	t.Helper()
	cfg.Self.ID = "a"
	cfg.SetDefaults()
	m := member.New(cfg)
	m.Step(after(0), member.Tick{})
	m.Step(after(time.Millisecond), member.Renewed{
		Start: after(0).Mono, Outcome: member.OutcomeDone, Lease: member.Lease{ID: "a", UID: "lease", Version: "1"},
	})
	return m
}

// find returns the first action of a type.
func find[A member.Action](actions []member.Action) (a A, ok bool) {
	i := slices.IndexFunc(actions, func(other member.Action) bool { _, is := other.(A); return is })
	if i < 0 {
		return a, false
	}
	return actions[i].(A), true
}

// Behind a slow API server a renewal may take half of the deadline, as in stock leader election, or what is left of it.
func TestR02SlowRenewals(t *testing.T) {
	for name, c := range map[string]struct {
		took   time.Duration
		answer member.Outcome
		want   time.Duration // 0: what is left
	}{
		"quick":           {time.Second, member.OutcomeDone, 2 * time.Second},
		"slow":            {1100 * time.Millisecond, member.OutcomeDone, 5 * time.Second},
		"without answer":  {time.Second, member.OutcomeUnknown, 5 * time.Second},
		"shortly before":  {5 * time.Second, member.OutcomeUnknown, 0},
		"after the lapse": {9 * time.Second, member.OutcomeUnknown, 5 * time.Second},
	} {
		m := renewed(t, member.Config{}) // until 10 s
		m.Step(after(2*time.Second), member.Tick{})
		now := after(2*time.Second + c.took)
		again, renews := find[member.RenewLease](m.Step(now, member.Renewed{
			Start: after(2 * time.Second).Mono, Outcome: c.answer, Lease: member.Lease{ID: "a", UID: "lease", Version: "2"},
		}))
		for !renews && m.Wake() < after(time.Hour).Mono {
			now.Mono = m.Wake()
			again, renews = find[member.RenewLease](m.Step(now, member.Tick{}))
		}
		if c.want == 0 {
			c.want = after(10*time.Second).Mono - now.Mono
		}
		if again.Timeout != c.want {
			t.Errorf("%s: the next renewal may take %v, want %v", name, again.Timeout, c.want)
		}
	}
}

// A change of the table has the same time where changes are slow, although renewals are quick.
func TestR02SlowSwaps(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		900 * time.Millisecond: 2 * time.Second, 1100 * time.Millisecond: 5 * time.Second,
	} {
		m, serial := joining(t, member.Config{})
		now := after(20*time.Millisecond + took)
		m.Step(now, member.Swapped{Serial: serial, Outcome: member.OutcomeConflict})
		again, swaps := find[member.Swap](m.Step(now, member.TableSeen{Snapshot: at("6", 8)}))
		for !swaps && m.Wake() < after(time.Minute).Mono {
			now.Mono = m.Wake()
			again, swaps = find[member.Swap](m.Step(now, member.Tick{}))
		}
		if again.Timeout != want {
			t.Errorf("after one that took %v, a swap may take %v, want %v", took, again.Timeout, want)
		}
	}
}

// At the deadline itself all slots are shut, the last one of the largest rota included, and not before (rule R2).
func TestR02LapsesAtTheDeadline(t *testing.T) {
	m := renewed(t, member.Config{Slots: slot.MaxCount})
	if _, shut := find[member.Shut](m.Step(after(10*time.Second-1), member.Tick{})); shut {
		t.Error("shut before the deadline")
	}
	if m.Wake() != after(10*time.Second).Mono {
		t.Errorf("wakes at %v, want the deadline", m.Wake())
	}
	shut, ok := find[member.Shut](m.Step(after(10*time.Second), member.Tick{}))
	if all := slot.SetOf(slot.Range{First: 0, Last: slot.MaxCount - 1}); !ok || shut.Slots != all {
		t.Errorf("at the deadline: shut %v, slots %v", ok, shut.Slots)
	}
}

// A write that is sent shortly before the deadline has the time that is left, and no more (rule R2).
func TestR02TimeoutsEndAtTheDeadline(t *testing.T) {
	m := renewed(t, member.Config{})
	first, _ := find[member.RenewLease](m.Step(after(2100*time.Millisecond), member.Tick{}))
	last, ok := find[member.RenewLease](m.Step(after(9*time.Second), member.Renewed{Outcome: member.OutcomeFailed}))
	if first.Timeout != 2*time.Second || !ok || last.Timeout > time.Second {
		t.Errorf("timeouts %v and %v, want 2s and at most 1s", first.Timeout, last.Timeout)
	}
}

// at is a version of the table, of a UID that it was adopted under.
func at(version string, epoch uint64) member.Snapshot {
	t := table.New(slot.DefaultCount, slot.KeyName, epoch)
	t.UID = "table"
	return member.Snapshot{UID: t.UID, Version: version, Table: t}
}

// joining returns a member that has sent the swap by which it joins, at 20 ms, and the swap's serial.
func joining(t *testing.T, cfg member.Config) (*member.Member, uint64) {
	t.Helper()
	m := renewed(t, cfg)
	watch, _ := find[member.WatchLeases](m.Step(after(10*time.Millisecond), member.TableSeen{Snapshot: at("5", 7), Listed: true}))
	actions := m.Step(after(20*time.Millisecond), member.LeasesSeen{
		Watch: watch.Serial, Complete: true, Leases: []member.Lease{{ID: "a", UID: "lease", Version: "1"}},
	})
	m.Step(after(20*time.Millisecond), member.TableSeen{Snapshot: at("5", 7), Consistent: true, Begun: after(time.Millisecond).Mono})
	swap, ok := find[member.Swap](actions)
	if !ok {
		t.Fatalf("it does not join: %v", actions)
	}
	return m, swap.Serial
}

// all returns all actions of a type.
func all[A member.Action](actions []member.Action) (of []A) {
	for _, a := range actions {
		if a, ok := a.(A); ok {
			of = append(of, a)
		}
	}
	return of
}

// What did not succeed is tried again soon, though not at once, and not by all members at the same moment.
func TestRetriesAreSpread(t *testing.T) {
	const ms = time.Millisecond
	failed := func(cfg member.Config, o member.Outcome) *member.Member {
		m, serial := joining(t, cfg)
		if _, again := find[member.Swap](m.Step(after(2000*ms), member.Swapped{Serial: serial, Outcome: o})); again {
			t.Errorf("after outcome %v it swaps at once", o)
		}
		return m
	}
	for _, c := range []struct {
		name    string
		fail    func(cfg member.Config) *member.Member // at 2 s
		min, by time.Duration
	}{
		{"renewal", func(cfg member.Config) *member.Member {
			m := renewed(t, cfg)
			m.Step(after(2000*ms), member.Tick{})
			m.Step(after(2000*ms), member.Renewed{Outcome: member.OutcomeFailed})
			return m
		}, 1000 * ms, 1500 * ms},
		{"read", func(cfg member.Config) *member.Member {
			m := renewed(t, cfg)
			m.Step(after(2000*ms), member.ReadFailed{})
			return m
		}, 1, 500 * ms},
		{"read after a conflict", func(cfg member.Config) *member.Member {
			return failed(cfg, member.OutcomeConflict)
		}, 1, 25 * ms},
		{"swap that failed", func(cfg member.Config) *member.Member {
			return failed(cfg, member.OutcomeFailed)
		}, 250 * ms, 500 * ms},
		{"swap of unknown outcome", func(cfg member.Config) *member.Member {
			return failed(cfg, member.OutcomeUnknown)
		}, 1, 50 * ms},
	} {
		retries := map[time.Duration]bool{}
		for seed := range uint64(20) {
			wait := c.fail(member.Config{Seed: seed}).Wake() - after(2000*ms).Mono
			if wait < c.min || wait > c.by {
				t.Errorf("%s: tried again after %v, want %v to %v", c.name, wait, c.min, c.by)
			}
			retries[wait] = true
		}
		if len(retries) < 10 {
			t.Errorf("%s: 20 members try again at only %d different times", c.name, len(retries))
		}
	}
}

// The shortest times that can be asked for do no harm.
func TestShortTimes(t *testing.T) {
	m := renewed(t, member.Config{RetryPeriod: 1, Coalesce: 1})
	if _, reads := find[member.ReadTable](m.Step(after(time.Second), member.ReadFailed{})); !reads {
		t.Error("a read that failed is not tried again")
	}
}

// A read that was begun before the table was seen, and did not find it, proves nothing: the table came meanwhile (rule
// R16).
func TestR16ReadBegunBeforeTheTableWasThere(t *testing.T) {
	m := renewed(t, member.Config{})
	m.Step(after(20*time.Millisecond), member.TableSeen{Snapshot: at("5", 7), Listed: true})
	actions := m.Step(after(30*time.Millisecond), member.TableSeen{Consistent: true, Begun: after(time.Millisecond).Mono})
	if _, shuts := find[member.Shut](actions); shuts {
		t.Error("it counts as missing")
	}
	if _, reads := find[member.ReadTable](actions); !reads {
		t.Error("it is not read again")
	}
}

// An earlier version of the same epoch, brought by a watch that lags, is no sign of an old copy: somebody annotated the
// ConfigMap.
func TestR16EarlierVersionOfTheSameEpoch(t *testing.T) {
	m := renewed(t, member.Config{})
	m.Step(after(20*time.Millisecond), member.TableSeen{Snapshot: at("5", 7), Consistent: true, Begun: after(time.Millisecond).Mono})
	if stopsWork(m.Step(after(30*time.Millisecond), member.TableSeen{Snapshot: at("4", 7), Listed: true})) {
		t.Error("it stops")
	}
}

// An old copy over a table that was invalid already is told as well: it takes another cure.
func TestR16OldCopyOverAnInvalidTable(t *testing.T) {
	m := renewed(t, member.Config{})
	m.Step(after(20*time.Millisecond), member.TableSeen{Snapshot: at("5", 7), Listed: true})
	for i, s := range []member.Snapshot{{UID: "table", Version: "6", Err: errors.New("edited")}, at("7", 6)} {
		begun := after(time.Duration(i+3) * 10 * time.Millisecond)
		seen := member.TableSeen{Snapshot: s, Consistent: true, Begun: begun.Mono}
		if !stopsWork(m.Step(begun, seen)) || stopsWork(m.Step(begun, seen)) {
			t.Errorf("version %s is not told, or twice", s.Version)
		}
	}
}

// A table of a lower epoch than Leases tell is an old copy if it was read since they told, not if the read began before
// (rule R16).
func TestR16ReadBegunBeforeLeasesTold(t *testing.T) {
	m := renewed(t, member.Config{})
	watch, ok := find[member.WatchLeases](m.Step(after(10*time.Millisecond), member.TableSeen{Snapshot: at("5", 7), Listed: true}))
	if !ok {
		t.Fatal("it does not watch the Leases")
	}
	told := member.LeasesSeen{Watch: watch.Serial, Complete: true, Leases: []member.Lease{
		{ID: "a", UID: "lease", Version: "1"}, {ID: "b", UID: "other", Version: "2", Epoch: 8, TableUID: "table"},
	}}
	m.Step(after(20*time.Millisecond), told)
	confirmed := func(begun time.Duration) member.TableSeen {
		return member.TableSeen{Snapshot: at("5", 7), Consistent: true, Begun: after(begun).Mono}
	}
	if stopsWork(m.Step(after(30*time.Millisecond), confirmed(time.Millisecond))) {
		t.Fatal("it stops by what was read before")
	}
	// That it is told again does not count: in a large rota some Lease tells all the time.
	m.Step(after(35*time.Millisecond), member.LeasesSeen{Watch: watch.Serial, Leases: []member.Lease{
		{ID: "b", UID: "other", Version: "3", Epoch: 8, TableUID: "table"},
	}})
	if !stopsWork(m.Step(after(40*time.Millisecond), confirmed(30*time.Millisecond))) || m.Ended() {
		t.Error("it goes on with the old copy, or ends")
	}
}

// A member that starts with another number of slots than the table has is told whose table it is and what to change, not
// to delete the ConfigMap of members that work (rule R4).
func TestR04OtherSlotsThanTheMembers(t *testing.T) {
	m := renewed(t, member.Config{Slots: 16})
	theirs := table.New(8, slot.KeyName, 6)
	theirs.UID = "table"
	for _, id := range []string{"web-0", "web-1", "web-2", "web-3"} {
		theirs.Put(table.Member{ID: id, Pod: id, Weight: 1, MinFormat: 1, MaxFormat: 1})
	}
	stop, ok := find[member.Stop](m.Step(after(20*time.Millisecond),
		member.TableSeen{Snapshot: member.Snapshot{Table: theirs, UID: "table", Version: "5"}, Listed: true}))
	if !ok {
		t.Fatal("it goes on")
	}
	text := stop.Err.Error()
	for _, want := range []string{"it has 8 slots by key Name, but this member was started with 16 slots",
		"its members are web-0, web-1, web-2, 1 more", "Options.Slots", "leave the ConfigMap as it is"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\ndoes not say %q", text, want)
		}
	}
	if strings.Contains(text, "delete") {
		t.Errorf("it tells people to delete the members' table: %s", text)
	}
}

// stopsWork says that a member stops all work, since it cannot go by the table.
func stopsWork(actions []member.Action) bool {
	n, ok := find[member.Notify](actions)
	return ok && n.Reason == "TableInvalid"
}

// Slots that do not come after all are released by the very version of the table that says so.
func TestR08ReleasedAtOnce(t *testing.T) {
	m := renewed(t, member.Config{})
	comes, stays := at("5", 7), at("6", 8)
	for _, s := range []member.Snapshot{comes, stays} {
		s.Table.Put(table.Member{ID: "a", Weight: 1, MinFormat: 1, MaxFormat: 1})
		s.Table.Put(table.Member{ID: "b", Weight: 1, MinFormat: 1, MaxFormat: 1})
		s.Table.Runs[0].Owner = "b"
	}
	comes.Table.Runs[0].Next = "a"
	if _, warms := find[member.Warm](m.Step(after(20*time.Millisecond), member.TableSeen{Snapshot: comes, Listed: true})); !warms {
		t.Error("they are not warmed")
	}
	release, _ := find[member.Release](m.Step(after(30*time.Millisecond), member.TableSeen{Snapshot: stays}))
	if release.Slots.Len() != slot.DefaultCount {
		t.Errorf("%d slots are released", release.Slots.Len())
	}
}

// Slots that were lost while the gate was shut, after a lapse, are released as well (rule R10).
func TestR10LostInALapse(t *testing.T) {
	m := renewed(t, member.Config{})
	mine, lost := at("5", 7), at("6", 8)
	for _, s := range []member.Snapshot{mine, lost} {
		s.Table.Put(table.Member{ID: "a", Weight: 1, MinFormat: 1, MaxFormat: 1})
		s.Table.Put(table.Member{ID: "b", Weight: 1, MinFormat: 1, MaxFormat: 1})
		s.Table.Runs[0].Owner, s.Table.Runs[0].Epoch = "a", 7
	}
	lost.Table.Runs[0].Owner, lost.Table.Runs[0].Epoch = "b", 8
	load, _ := find[member.Load](m.Step(after(20*time.Millisecond), member.TableSeen{Snapshot: mine, Listed: true}))
	m.Step(after(30*time.Millisecond), member.Loaded{Slots: load.Slots, Round: load.Round})
	m.Step(after(2*time.Second), member.Tick{})
	m.Step(after(11*time.Second), member.TableSeen{Snapshot: mine, Consistent: true, Begun: after(time.Millisecond).Mono})
	m.Step(after(12*time.Second), member.Renewed{
		Start: after(11 * time.Second).Mono, Outcome: member.OutcomeDone, Lease: member.Lease{ID: "a", UID: "lease", Version: "2"},
	})
	release, _ := find[member.Release](m.Step(after(13*time.Second), member.TableSeen{
		Snapshot: lost, Consistent: true, Begun: after(12 * time.Second).Mono,
	}))
	if load.Slots.Len() != slot.DefaultCount || release.Slots != load.Slots {
		t.Errorf("%d slots were loaded, %d are released", load.Slots.Len(), release.Slots.Len())
	}
}

// Who loses a swap waits for a random time that doubles with each loss, up to 64 times 25 ms (rule R3).
func TestR03LosersWaitLonger(t *testing.T) {
	const losses = 8
	var longest [losses]time.Duration
	for seed := range uint64(20) {
		m, serial := joining(t, member.Config{Seed: seed})
		now := after(20 * time.Millisecond).Mono
		for n := range losses {
			lost := now
			m.Step(member.Time{Mono: now}, member.Swapped{Serial: serial, Outcome: member.OutcomeConflict})
			swap, again := find[member.Swap](m.Step(member.Time{Mono: now}, member.TableSeen{Snapshot: at(strconv.Itoa(6+n), uint64(8+n))}))
			for i := 0; !again; i++ {
				if i == 10 {
					t.Fatalf("loss %d: it does not try again", n+1)
				}
				now = m.Wake()
				swap, again = find[member.Swap](m.Step(member.Time{Mono: now}, member.Tick{}))
			}
			serial = swap.Serial
			if limit := 25 * time.Millisecond << min(n, 6); now-lost > limit {
				t.Errorf("loss %d: waits for %v, want at most %v", n+1, now-lost, limit)
			}
			longest[n] = max(longest[n], now-lost)
		}
	}
	for n, d := range longest {
		if limit := 25 * time.Millisecond << min(n, 6); d < limit/2 {
			t.Errorf("loss %d: none of 20 members waits for longer than %v, want up to %v", n+1, d, limit)
		}
	}
}

// Slots are loaded and opened by their epochs, with the versions that their former owner left, and by whether they are
// still held.
func TestR08LoadsAreGrouped(t *testing.T) {
	m := renewed(t, member.Config{})
	s := at("5", 30)
	s.Table.Put(table.Member{ID: "a", Weight: 1, MinFormat: 1, MaxFormat: 1})
	s.Table.Notes = map[uint64]table.Note{
		10: {Cause: table.CauseHanded, Versions: table.Versions{"Website": "1"}},
		20: {Cause: table.CauseHanded, Versions: table.Versions{"Website": "2"}},
	}
	run := func(first, last slot.Slot, epoch uint64) table.Run {
		return table.Run{Slots: slot.Range{First: first, Last: last}, Owner: "a", Epoch: epoch, Unsettled: true}
	}
	s.Table.Runs = []table.Run{run(0, 9, 10), run(10, 19, 20), run(20, 255, 10)}
	old := slot.SetOf(slot.Range{First: 0, Last: 9}, slot.Range{First: 20, Last: 255})
	actions := m.Step(after(20*time.Millisecond), member.TableSeen{Snapshot: s, Listed: true})
	loads := all[member.Load](actions)
	if len(loads) != 2 || loads[0].Slots != old || loads[0].Versions["Website"] != "1" || loads[1].Versions["Website"] != "2" {
		t.Fatalf("loads: %+v", loads)
	}
	m.Step(after(30*time.Millisecond), member.Loaded{Slots: old, Round: loads[0].Round})
	m.Step(after(40*time.Millisecond), member.Loaded{Slots: loads[1].Slots, Round: loads[1].Round})
	m.Step(after(50*time.Millisecond), member.Renewed{
		Start: after(20 * time.Millisecond).Mono, Outcome: member.OutcomeDone, Lease: member.Lease{ID: "a", UID: "lease", Version: "2", Open: true},
	})
	opens := all[member.Open](m.Step(after(70*time.Millisecond), member.TableSeen{Snapshot: s, Consistent: true, Begun: after(60 * time.Millisecond).Mono}))
	if len(opens) != 2 || opens[0].Slots != old || opens[0].Epoch != 10 || opens[1].Slots != loads[1].Slots || opens[1].Epoch != 20 {
		t.Errorf("opens: %+v", opens)
	}
}

// A table that was read ahead of the watch does not count as unproven for a retry period, so that not all Leases are
// listed whenever a watch lags for a moment. One with which the watch began anew is unproven at once (rule R16).
func TestR16WhenLeasesAreAsked(t *testing.T) {
	m := renewed(t, member.Config{})
	table7 := func(version string) member.Snapshot {
		s := at(version, 7)
		s.Table.Put(table.Member{ID: "a", Weight: 1, MinFormat: 1, MaxFormat: 1})
		return s
	}
	watch, _ := find[member.WatchLeases](m.Step(after(10*time.Millisecond), member.TableSeen{Snapshot: table7("5"), Listed: true}))
	own := member.LeasesSeen{Watch: watch.Serial, Complete: true, Leases: []member.Lease{{ID: "a", UID: "lease", Version: "1"}}}
	m.Step(after(20*time.Millisecond), own)
	actions := m.Step(after(30*time.Millisecond), member.TableSeen{Snapshot: table7("6"), Consistent: true, Begun: after(20 * time.Millisecond).Mono})
	if _, asks := find[member.WatchLeases](actions); asks {
		t.Error("a watch that lags: asked at once")
	}
	watch, asks := find[member.WatchLeases](m.Step(after(2030*time.Millisecond), member.Tick{}))
	if !asks {
		t.Error("a watch that is silent: not asked")
	}
	own.Watch = watch.Serial
	m.Step(after(2040*time.Millisecond), own)
	if _, asks := find[member.WatchLeases](m.Step(after(2050*time.Millisecond), member.TableSeen{Snapshot: table7("7"), Listed: true})); !asks {
		t.Error("a watch that began anew: not asked at once")
	}
}

// Whoever joins with another wall clock is told of, once, by the member that plans; and its clock is not believed (rule
// R9).
func TestR09ClocksThatDiffer(t *testing.T) {
	for _, c := range []struct {
		ahead int64
		told  bool
	}{{0, false}, {60, false}, {-60, false}, {3600, true}, {-3600, true}} {
		told := 0
		ids := strings.Split("bcdefghijklmnopqrstuvwxyz", "")
		for _, id := range ids { // by their hashes some plan before this one
			m := renewed(t, member.Config{})
			joined := func(version string, epoch uint64, others ...table.Member) []member.Action {
				tab := table.New(slot.DefaultCount, slot.KeyName, epoch)
				tab.UID = "table"
				for _, other := range append(others, table.Member{ID: "a", Joined: after(0).Wall}) {
					other.Weight, other.MinFormat, other.MaxFormat = 1, 1, 1
					tab.Put(other)
				}
				return m.Step(after(time.Second), member.TableSeen{Snapshot: member.Snapshot{UID: "table", Version: version, Table: tab}})
			}
			joined("5", 5)
			other := table.Member{ID: id, Joined: after(0).Wall + c.ahead}
			for _, actions := range [][]member.Action{joined("6", 6, other), joined("7", 7, other)} {
				for _, a := range actions {
					if n, ok := a.(member.Notify); ok && n.Reason == "ClockSkew" {
						told++
					}
				}
			}
		}
		if told > len(ids) || (told > 0) != c.told {
			t.Errorf("%d s ahead: told %d times", c.ahead, told)
		}
	}
}

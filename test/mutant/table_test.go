package mutant

const member = "internal/protocol/member/"

// rota returns a test of the root package.
func rota(run string) check { return check{pkg: ".", run: "^" + run + "$"} }

// bugs has most of the bugs that only one tool finds, and at least one for each rule and each tool. docs/results.md has
// the others, with the tools that found them.
var bugs = []bug{
	// The protocol: scripts of package member, by rule.
	{
		"GapCapped", "R1: a gap of the observer counts whole", member + "watch.go",
		"m.watch.step = min(gap, quarter)", "m.watch.step = gap", script("R01_gap_is_capped"),
	}, {
		"MissingRestarts", "R1: a missing Lease does not restart the wait", member + "watch.go",
		"pending := o.pending || !(gapless && m.dead(id))", "pending := o.pending", script("R01_missing_restarts_the_wait"),
	}, {
		"ConflictIsSuccess", "R3: a swap that met a conflict counts as done", member + "swap.go",
		"if e.Outcome == OutcomeUnknown {", "if e.Outcome == OutcomeConflict {\nreturn\n}\nif e.Outcome == OutcomeUnknown {",
		check{pkg: "internal/protocol/member", run: "^TestR03LosersWaitLonger$"},
	}, {
		"InvalidBelieved", "R4: members go by a table that is not theirs", member + "read.go",
		"if err := m.refuse(s); err != nil {", "if err := m.refuse(s); err != nil && s.Err != nil {", script("R04_other_options_stop"),
	}, {
		"OpenEpoch", "R5: a slot opens at another epoch than it was activated for", member + "slots.go",
		"if l.epoch != r.Epoch {", "if l.epoch != r.Epoch && l.epoch == 0 {", script("R05_open_at_its_epoch"),
	}, {
		"UnseenWaits", "R6: an owner takes a move back before its watch has shown the next owner", member + "swap.go",
		`unseen := r.Next != "" && m.watch.others[r.Next] == nil`, "unseen := false", script("R06_next_not_seen_yet"),
	}, {
		"DrainNotCalledOff", "R6: a drain that was called off begins", "internal/replica/driver.go",
		"if d.draining[s] == a.Round {\n", "if d.draining[s] >= 0 {\n", script("R06_drain_called_off_before_it_began"),
	}, {
		"FenceWait", "R7: new owners do not wait for the fence", member + "slots.go",
		"; expelled || m.now.Mono < m.outlives {", "; expelled && r.Epoch == 0 {", script("R07_new_owners_wait"),
	}, {
		"RestartWaits", "R9: no fence wait after a restart", member + "join.go",
		"epoch := d.note(t.Epoch, table.CauseExpelled, nil)", "epoch := d.note(t.Epoch, table.CauseAssigned, nil)",
		script("R09_restart_waits"),
	}, {
		"OpenByTheTableBefore", "R13: a slot opens whatever became of a transfer that was sent", member + "slots.go",
		"	case drained:\n", "	case drained:\nif l.shut {\nm.activate(t, s, r, l, req)\nreturn\n}\n",
		script("R13_sent_again_after_a_lapse"),
	}, {
		"LeasesSince", "R16: a table is adopted by what Leases told before it was made", member + "recovery.go",
		`return w != "" && resourceversion.Compare(m.watch.version, w) >= 0`,
		`return w == "" || resourceversion.Compare(m.watch.version, w) < 2`, script("R16_leases_since"),
	}, {
		"Follows", "R16: a table is written upon that does not follow from those before", member + "versions.go",
		"return resourceversion.Compare(m.snap.Version, m.trail.known) <= 0",
		"return resourceversion.Compare(m.snap.Version, m.trail.known) <= 1", script("R16_read_ahead_of_the_watch"),
	}, {
		"ClearedFirst", "R16: a restored table is adopted with the members that it names", member + "recovery.go",
		`switch restored := t.UID != ""; {`, "switch restored := false; {", script("R16_copy_names_the_dead"),
	}, {
		"DutyUnfenced", "R18: a duty that nobody owns begins without the fence's wait", member + "planning.go",
		"group = expelled // nobody knows", "group = gained // nobody knows", script("R18_begins_after_the_fence_wait"),
	}, {
		"DrainedLast", "R19: a drained member gets nothing, even if there is nobody else", member + "eligible.go",
		"for _, drained := range []bool{false, true} {", "for _, drained := range []bool{false} {", script("R19_nobody_else"),
	}, {
		"Unwanted", "R19: a move to a member that is drained meanwhile goes on", member + "swap.go",
		"m.suspends(t, r) || state == open && m.unwanted(t, r)", "m.suspends(t, r)", script("R19_unwanted"),
	}, {
		"DrainInherits", "R19: a container that restarts is not drained any more", member + "join.go",
		"d.next.Inherit(self, m.cfg.Former)\n", "", script("R19_restarted_container"),
	}, {
		"OrdersEnd", "R19: orders do not end for a process that cannot read them", member + "pause_drain.go",
		"_, format := m.unreadable(t)", "format := 0", script("R19_older_joiner"),
	}, {
		"LoadsAgreed", "R21: a planner evens out loads although a member plans by number", member + "balance.go",
		"return ok && !other.Leaving && !r.ByLoad", "return ok && other.Leaving && !r.ByLoad", script("R21_planned_by_number"),
	}, {
		"PinsHold", "R22: a pinned slot goes to any member", member + "place.go",
		"if !one.Slots.Empty() {", "if one.Slots.Len() > 1 {", script("R22_pins"),
	},
	// Plans, the gate, drivers and controllers: tests in their packages.
	{
		"TokenForgotten", "R12: a reconciler does not get the epoch", "internal/gate/enter.go",
		"slot: s, epoch: st.epoch,", "slot: s, epoch: 0,", check{pkg: "internal/gate", run: "^TestR12"},
	}, {
		"DrainsPastDeadline", "R15: a drain ends after the deadline", "internal/gate/drain.go",
		"if st.state == draining && g.now() >= g.deadline {", "if st.state == draining && g.deadline < 0 {",
		check{pkg: "internal/gate", run: "^TestR15DrainsEndWithTheDeadline$"},
	}, {
		"OpenedMeanwhile", "R15: a deletion that was cut short is owed to an open slot", "internal/work/controller.go",
		"if !c.env.Gate.AdmitsGone(s) {\n", "if c != nil {\n", rota("TestR15DeletionsCutShort.*"),
	}, {
		"OthersCountAlike", "R14: as many other objects count as those that exist", "internal/coverage/compare.go",
		"if f.Exist == f.Held {", "if f.Exist.Objects == f.Held.Objects {", check{pkg: "internal/coverage", run: "^TestCompare$"},
	}, {
		"ResetForgotten", "R10: a controller is not told that its counts are void", "internal/controllers/controller.go",
		"	c.reset(ctx, a.Slot, key)\n", "", rota("TestR10Reset"),
	}, {
		"LeaversSlotsLost", "R17: a plan does not place leavers' slots", "internal/protocol/plan/assign.go",
		"		a.place(take)\n", "", check{pkg: "internal/protocol/plan", run: "^TestAssign"},
	}, {
		"LeaseOutlived", "R20: a deadline counts from the answer", "internal/protocol/election/candidate.go",
		"c.until = max(c.until, start+c.cfg.Deadline)", "c.until = max(c.until, now.Late()+c.cfg.Deadline)",
		check{pkg: "internal/protocol/election", run: "^TestModel$"},
	},
	// What the simulator alone finds.
	{
		"TakenNotWaiting", "a deletion that a worker has taken does not hold its slot", "internal/work/keys.go",
		"return e.place != place{} })", "return e.place.queued })", life("882"),
	}, {
		"DrainForgotten", "another drain calls off those that wait for the watch", "internal/replica/driver.go",
		"for _, s := range a.Slots.Slots() {\n\t\td.draining",
		"clear(d.draining)\nfor _, s := range a.Slots.Slots() {\n\t\td.draining",
		life("159"),
	}, {
		"DutyDoneAgain", "a duty that has finished runs again at the same epoch", "internal/duty/duty.go",
		"if d.term != t || d.finished == t.epoch {", "if d.term != t {", life("359"),
	}, {
		"DutyTwice", "a duty runs twice at a time", "internal/duty/duty.go", "idle := !d.busy", "idle := true", life("105"),
	}, {
		"DutyForgotten", "a duty that was opened before its former run returned is not run", "internal/duty/duty.go",
		"more := t != nil && t != served", "more := false", life("333"),
	}, {
		"DutyNotRestarted", "a failed duty does not run again", "internal/duty/duty.go", "due := d.term == t", "due := false", life("2"),
	}, {
		"TurnsAfterRenewals", "R16: turns to write a lost table begin anew with each renewal", member + "recovery.go",
		"mine := m.waited(&m.recovery.ready, true, m.turn())", "mine := m.due(m.watch.echo + m.turn())", life("12264"),
	}, {
		"AnswerForgotten", "R8: the version in an answer does not hold the next owner", "internal/delivery/written/record.go",
		"if resourceversion.Compare(r.wrote[p.Key][p.Slot], version) < 0 {",
		"if resourceversion.Compare(r.wrote[p.Key][p.Slot], version) < -1 {", life("14"),
	}, {
		"DeletionForgotten", "R8: an answered deletion does not hold the next owner", "internal/delivery/written/record.go",
		"o.gone[name] = uid", "delete(o.gone, name)", life("230"),
	}, {
		"LostWriteForgotten", "R8: an unanswered write does not hold the next owner", "internal/delivery/written/record.go",
		"r.at(p).blind++ }", "}", life("1014"),
	},
	// Streams and deliveries.
	{
		"WentOnFromThere", "an object that had gone on comes back", "internal/delivery/stream/stream.go",
		"e.Type == Deleted || o.In && s.carries(o.Slot), o.Version)", "e.Type == Deleted, o.Version)",
		check{pkg: "test/streamtest", run: "^TestGraveyard$"},
	}, {
		"DeletedBelieved", "R11: a DELETED by a selector counts as a deletion", "internal/delivery/stream/stream.go",
		"	if !s.cfg.Selects {\n\t\treturn append(out, s.tell(e)), Verdict{}", "	if !s.cfg.Selects || e.Type == Deleted {\nreturn append(out, s.tell(e)), Verdict{}",
		suite("SlotLabel", "R11LabelsGoWrong"),
	}, {
		"OwnedAfterPrimary", "slots count as loaded before owned objects are", "internal/delivery/hold.go",
		"src, released, missing := inf.source, false, slot.Set{}",
		"if !inf.role.Primary {\ncontinue\n}\nsrc, released, missing := inf.source, false, slot.Set{}",
		check{pkg: "internal/delivery", run: "^TestOwnedKinds$"},
	}, {
		"HandedBehind", "slots count as loaded before their former owner's versions are reached", "internal/delivery/hold.go",
		"case !named:", "case !named, true:", check{pkg: "internal/delivery", run: "^TestOwnedKinds$"},
	}, {
		"StaleListAtActivation", "R8: a list made during the fence's wait counts", "internal/delivery/catchup.go",
		"return s.follow(ctx, set, s.active(), func(src *source) (string, error) { return src.present(ctx) })", "return nil",
		suite("Filter", "R8ExpelledListsAgain"),
	}, {
		"CachedLists", "lists of slots may be old", "internal/delivery/list.go",
		"asked := s.scope.Narrow(&o, t.Set)", "o.ResourceVersion = \"0\"\nasked := s.scope.Narrow(&o, t.Set)", suite("Filter", "HoldsAndHearsItsShare"),
	}, {
		"WatchFromList", "a watch goes on from the latest list", "internal/delivery/watch.go",
		"set := p.source.core.Needed()\n\tp",
		"set := p.source.core.Needed()\no.ResourceVersion = max(o.ResourceVersion, p.source.core.Listed())\np",
		suite("Filter", "CutWhileGrowing"),
	},
	// Writes and rejoining.
	{
		"TimeoutUncapped", "R2: the timeout of a write reaches beyond the deadline", "internal/writes/transport.go",
		"timeout := min(left, w.env.Timeout)", "timeout := w.env.Timeout", rota("TestR02WritesEndBeforeTheDeadline"),
	}, {
		"UnknownIsOver", "R6: a write of unknown outcome is not in flight", "internal/writes/transport.go",
		"time.AfterFunc(time.Until(s.settled(time.Now())), release)", "release()", rota("TestR06UnknownOutcomeStaysInFlight"),
	}, {
		"RejoinInFlight", "R13: an expelled process joins again with writes in flight", "rota.go",
		"for r.inFlight() > 0 {", "for r.inFlight() > 1<<20 {", rota("TestR13RejoinsWhenNothingIsInFlight"),
	},
	// Held against what it stands in for.
	{
		"BackoffForgotten", "an item that failed is added again without a backoff", "internal/controllers/queue.go",
		"q.TypedRateLimitingInterface.AddRateLimited(item)", "q.TypedRateLimitingInterface.Add(item)", rota("TestAQueueIsAStockQueue"),
	}, {
		"ProxyBounded", "requests to containers are bounded as writes are", "internal/writes/transport.go",
		"if t, ok := targetOf(req); ok && !t.changes() {", `if t, ok := targetOf(req); ok && t.sub == "never" {`, rota("TestRequestsAreStockRequests"),
	}, {
		"ShareForAll", "List from outside of reconciles returns a share", "ctrlrt/reader.go",
		"case !r.shares(askerFrom(ctx, r.rota), kind):", "case kind.Kind == `none`:", check{pkg: "ctrlrt", run: "^TestReadsAreThoseOfAStockManager$"},
	},
}

package member_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/sim"
)

// node is the latest incarnation of a pod.
func (r *run) node(pod string) *sim.Node {
	for _, n := range slices.Backward(r.w.Nodes) {
		if n.Replica.Pod == pod {
			return n
		}
	}
	panic("no pod " + pod)
}

func (r *run) command(words []string) error {
	arg := func(i int) string {
		if i >= len(words) {
			panic(fmt.Sprintf("%v: too few words", words))
		}
		return words[i]
	}
	each := func(do func(*sim.Node)) {
		for _, pod := range words[1:] {
			do(r.node(pod))
		}
	}
	rest := func(i int) string { return strings.Join(words[min(i, len(words)):], " ") }
	switch words[0] {
	case "slots", "many", "outlives", "byload", "key":
	case "start":
		r.start(words[1:])
	case "twin":
		each(func(n *sim.Node) {
			r.w.Start(&sim.Replica{Pod: n.Replica.Pod, PodUID: "uid-twin", Container: "main", Build: n.Replica.Build, Weight: 1})
		})
	case "restart":
		each(func(n *sim.Node) { r.w.Start(n.Replica) })
	case "crash":
		each((*sim.Node).Crash)
	case "leave":
		each((*sim.Node).Leave)
	case "pause":
		each(func(n *sim.Node) { n.Pause(0) })
	case "sleep":
		each(func(n *sim.Node) { n.Sleep(0) })
	case "halt":
		action := rest(2)
		r.node(arg(1)).HaltBefore(func(a member.Action) bool { return fmt.Sprintf("%T", a) == "member."+action })
	case "resume":
		each((*sim.Node).Resume)
	case "advance":
		r.w.Run(duration(arg(1)))
	case "settle":
		r.w.Settle(duration(arg(1)))
	case "hold":
		r.node(arg(1)).Link.Hold(rest(2))
	case "release":
		r.node(arg(1)).Link.Release(rest(2))
	case "stale":
		r.node(arg(1)).Stale = true
	case "lose":
		r.node(arg(1)).Link.Lose(rest(2))
	case "admit":
		if !r.node(arg(1)).Link.Admit(rest(2)) {
			return errors.New("no such request was lost")
		}
	case "block", "unblock", "relist", "deliver":
		return r.feed(words)
	case "down", "up":
		r.w.Net.Down = words[0] == "down"
		for _, n := range r.w.Live() {
			for _, f := range []*sim.Feed{n.Link.Tables(), n.Link.Leases()} {
				switch {
				case f == nil: // it starts, and does not watch Leases yet
				case r.w.Net.Down:
					f.Block()
				default:
					f.Unblock()
				}
			}
		}
	case "let":
		t := r.w.Objects.Table().Table
		set := t.Owned(r.node(arg(2)).ID)
		if len(words) > 3 {
			set = set.Intersect(t.Coming(r.node(arg(3)).ID))
		}
		if set.Empty() {
			return errors.New("there is no such slot")
		}
		r.vars[arg(1)] = set.Slots()[0].String()
	case "edit":
		r.w.Objects.EditTable(func(text map[string]string) { text[arg(1)] = rest(2) })
		r.w.Sync()
	case "order":
		return r.order(words[1:])
	case "delete", "save", "restore", "overwrite":
		if words[0] == "overwrite" && !r.w.Told() {
			return errors.New("no Lease tells of the table's epoch yet")
		}
		r.tamper(words)
	case "fly":
		if !r.node(arg(1)).Work.Fly(slot.Slot(number(arg(2)))) {
			return errors.New("not admitted")
		}
	case "busy":
		set := r.set(arg(1))
		for _, s := range set.Slots() {
			r.busy[s] = int64(number(arg(2)))
		}
	case "tries":
		var of trial.Side
		for i := range number(arg(2)) {
			of.Add(time.Duration(number(arg(4)))*time.Millisecond, 0, i < number(arg(3)))
		}
		r.tallies[arg(1)] = of
	case "mute", "unmute":
		r.node(arg(1)).Mute = words[0] == "mute"
	case "stick":
		if !r.node(arg(1)).Duties.Stick(r.slot(arg(2))) {
			return errors.New("it does not do the duty")
		}
	case "land":
		r.node(arg(1)).Work.Land(r.slot(arg(2)))
	case "write":
		if !r.node(arg(1)).Work.Write(r.slot(arg(2)), duration(arg(3)), rest(4) != "unfenced") {
			return errors.New("nothing in flight")
		}
	case "long":
		r.node(arg(1)).WantLong(duration(arg(2)))
	case "remove":
		r.node(arg(1)).Work.Delete(slot.Slot(number(arg(2))))
	case "hand":
		r.node(arg(1)).Work.LeaveGone(slot.Slot(number(arg(2))))
	case "reconcile":
		if !r.node(arg(1)).Work.Reconcile(slot.Slot(number(arg(2)))) {
			return errors.New("not admitted")
		}
	case "expect":
		return r.within(0, words[1:])
	case "wait":
		return r.within(duration(arg(1)), words[2:])
	case "never":
		for end := r.w.Now() + duration(arg(1)); r.w.Now() < end && !r.w.Failed(); r.w.Run(5 * time.Millisecond) {
			if r.holds(words[2:]) {
				return errors.New("it came to be")
			}
		}
	default:
		panic("no command " + words[0])
	}
	return nil
}

func (r *run) start(words []string) {
	build, format, duties, labels := "v1", 0, "", ""
	for _, word := range words {
		if b, ok := strings.CutPrefix(word, "build="); ok {
			build = b
		}
		if f, ok := strings.CutPrefix(word, "format="); ok {
			format = number(f)
		}
		if list, ok := strings.CutPrefix(word, "duties="); ok {
			duties = manyDuties(list)
		}
		if l, ok := strings.CutPrefix(word, "labels="); ok {
			labels = l
		}
		if word == "by=number" {
			for _, pod := range words {
				r.numbers[pod] = true
			}
		}
	}
	for _, pod := range words {
		if !strings.Contains(pod, "=") {
			r.w.Start(&sim.Replica{
				Pod: pod, PodUID: "uid-" + pod, Container: "main", Build: build, Weight: 1, MaxFormat: format, Duties: duties,
				Labels: labels,
			})
		}
	}
}

// manyDuties returns names separated by commas; 1-200 stands for 200 of them, and 1-200e for those with that letter.
func manyDuties(list string) string {
	var names []string
	for _, name := range strings.Split(list, ",") {
		first, last, many := strings.Cut(name, "-")
		if !many {
			names = append(names, name)
			continue
		}
		letter := strings.TrimLeft(last, "0123456789")
		for i := number(first); i <= number(strings.TrimSuffix(last, letter)); i++ {
			names = append(names, fmt.Sprintf("%s%03d", cmp.Or(letter, "d"), i))
		}
	}
	return table.JoinDuties(names...)
}

// slot is that of a number, or of a duty's name, which the table may have dropped since it was last asked for.
func (r *run) slot(text string) slot.Slot {
	if t := r.w.Objects.Table().Table; t != nil {
		if s, ok := t.DutySlot(text); ok {
			r.duties[text] = s
			return s
		}
	}
	if s, ok := r.duties[text]; ok {
		return s
	}
	return slot.Slot(number(text))
}

// set is of slots and duties, separated by commas.
func (r *run) set(text string) (set slot.Set) {
	for _, part := range strings.Split(text, ",") {
		if rng, err := slot.ParseRange(part); err == nil {
			set.AddRange(rng)
		} else {
			set.Add(r.slot(part))
		}
	}
	return set
}

// order has a person change the table.
func (r *run) order(words []string) error {
	const since = 1_700_000_000
	return r.w.Order(func(t *table.Table) {
		switch words[0] {
		case "pause":
			t.Pause = table.Pause{Since: since, By: "somebody", Reason: "a look at it"}
		case "resume":
			t.Pause = table.Pause{}
		case "drain":
			t.PutDrain(r.node(words[1]).ID, since, "somebody", "")
		case "undrain":
			t.Undrain(r.node(words[1]).ID)
		case "rebalance":
			r.w.Rebalance(t)
		case "canary":
			t.Canary = table.Canary{Build: words[1], Every: int64(number(words[3])), Since: r.w.Wall(), By: "somebody"}
			for percent := range strings.SplitSeq(words[2], ",") {
				t.Canary.Steps = append(t.Canary.Steps, number(percent))
			}
			if len(words) > 4 {
				t.Canary.Namespaces = strings.Split(words[4], ",")
			}
		case "promote":
			t.Canary.State = table.CanaryPromoted
		case "abort":
			t.Canary.State = table.CanaryBack
		case "end":
			t.Canary = table.Canary{}
		case "pin":
			t.PutPin(table.Pin{Object: objectIn(t, number(words[1])), Labels: words[2], Since: since, By: "somebody"})
		case "unpin":
			t.DropPin(objectIn(t, number(words[1])))
		default:
			panic("no order " + words[0])
		}
	})
}

// objectIn is the name of an object of a slot.
func objectIn(t *table.Table, s int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("a/x%d", i); t.SlotOf(name) == slot.Slot(s) {
			return name
		}
	}
}

func (r *run) feed(words []string) error {
	n := r.node(words[1])
	f := n.Link.Tables()
	if words[2] == "leases" {
		f = n.Link.Leases()
	}
	switch words[0] {
	case "block":
		f.Block()
	case "unblock":
		f.Unblock()
	case "relist":
		f.Relist()
	case "deliver":
		if want := number(words[3]); f.Deliver(want) < want {
			return errors.New("fewer were waiting")
		}
	}
	return nil
}

func (r *run) tamper(words []string) {
	o := r.w.Objects
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "delete table":
		o.RemoveTable()
	case "delete lease":
		o.RemoveLease(r.node(words[2]).ID)
	case "delete leases":
		for _, l := range o.Leases() {
			o.RemoveLease(l.ID)
		}
	case "save":
		r.saved = maps.Clone(o.Text())
	case "restore":
		o.RestoreTable(r.saved)
	case "overwrite":
		o.EditTable(func(text map[string]string) {
			clear(text)
			maps.Copy(text, r.saved)
		})
	default:
		panic(words)
	}
	r.w.Sync()
}

// within runs until the condition holds, for at most limit.
func (r *run) within(limit time.Duration, words []string) error {
	for end := r.w.Now() + limit; ; r.w.Run(time.Millisecond) {
		if r.holds(words) || r.w.Failed() {
			return nil
		}
		if r.w.Now() >= end {
			return errors.New("it is not so")
		}
	}
}

// holds says whether a condition holds.
func (r *run) holds(words []string) bool {
	if words[0] == "not" {
		return !r.holds(words[1:])
	}
	slots := func(i int) slot.Set { return r.set(words[i]) }
	t := r.w.Objects.Table().Table
	switch words[0] {
	case "table": // there is one
		return t != nil
	case "open": // open POD SLOTS: all of them are
		set := slots(2)
		return set.Minus(r.node(words[1]).Open()) == slot.Set{}
	case "long": // long POD: its writes may take longer than the write timeout
		return r.node(words[1]).Work.MayLong()
	case "shut": // shut POD: no slot is open
		return r.node(words[1]).Open() == slot.Set{}
	case "owns": // owns POD SLOTS
		set := slots(2)
		return t != nil && set.Minus(t.Owned(r.node(words[1]).ID)) == slot.Set{}
	case "owned": // owned POD N: it owns that many
		set := t.Owned(r.node(words[1]).ID)
		return set.Len() == number(words[2])
	case "next": // next POD SLOTS
		set := slots(2)
		return set.Minus(t.Coming(r.node(words[1]).ID)) == slot.Set{}
	case "moving": // some slot moves
		return slices.ContainsFunc(t.Runs, func(run table.Run) bool { return run.Next != "" })
	case "paused":
		return t != nil && t.Paused()
	case "drained": // drained POD
		return t != nil && t.Drained(r.node(words[1]).ID)
	case "canary": // canary none|runs|promoted|back [STEP]
		state := "none"
		if t.Canary.On() {
			state = t.Canary.State.String()
		}
		return words[1] == state && (len(words) < 3 || number(words[2]) == t.Canary.Step)
	case "begun": // the canary has
		return t.Canary.Began != 0
	case "apart": // apart POD...: they own all of the canary's slots, and no others
		var own slot.Set
		for _, pod := range words[1:] {
			own = own.Union(t.Owned(r.node(pod).ID))
		}
		return own == t.CanarySlots()
	case "labeled": // labeled POD: the table has its labels
		m, _ := t.Member(r.node(words[1]).ID)
		return m.Labels != ""
	case "pins": // pins N: the table has so many
		return len(t.Pins) == number(words[1])
	case "ready": // some slot that moves to POD is ready
		return slices.ContainsFunc(t.Runs, func(run table.Run) bool { return run.Ready && run.Next == r.node(words[1]).ID })
	case "does": // does POD DUTY...: it does them now
		return !slices.ContainsFunc(words[2:], func(name string) bool { return !r.node(words[1]).Duties.Does(name) })
	case "duties": // duties POD N: it owns that many; duties none: the table has none
		if words[1] == "none" {
			return t != nil && len(t.Duties) == 0
		}
		return t != nil && t.DutyCounts()[r.node(words[1]).ID] == number(words[2])
	case "even": // no member has two duties more than another
		counts := slices.Collect(maps.Values(t.DutyCounts()))
		return len(counts) > 0 && slices.Max(counts)-slices.Min(counts) <= 1
	case "unowned": // unowned DUTY: nobody has it
		s, ok := t.DutySlot(words[1])
		return ok && t.At(s).Owner == ""
	case "member":
		if t == nil {
			return false
		}
		_, ok := t.Member(r.node(words[1]).ID)
		return ok
	case "first-member": // member of the first incarnation of POD
		_, ok := t.Member(words[1] + "-1")
		return ok
	case "lease":
		_, ok := r.w.Objects.Lease(r.node(words[1]).ID)
		return ok
	case "says-open":
		l, ok := r.w.Objects.Lease(r.node(words[1]).ID)
		return ok && l.Open
	case "ended":
		return r.node(words[1]).Stopped != nil
	case "left": // ended without an error
		return r.node(words[1]).Stopped != nil && r.node(words[1]).Stopped.Err == nil
	case "stopped": // stopped POD WORDS: by an error that contains them
		s := r.node(words[1]).Stopped
		return s != nil && s.Err != nil && strings.Contains(s.Err.Error(), strings.Join(words[2:], " "))
	case "rejoined": // a later incarnation runs in the process of POD
		return r.node(words[1]).ID != words[1]+"-1"
	case "notes": // notes POD REASON
		return slices.Contains(r.node(words[1]).Notes, words[2])
	case "told": // told REASON: some member has noted it
		return slices.ContainsFunc(r.w.Nodes, func(n *sim.Node) bool { return slices.Contains(n.Notes, words[1]) })
	case "knows": // knows POD SLOT: of a deletion that is not reconciled
		return r.node(words[1]).Work.Knows(slot.Slot(number(words[2])))
	case "planner":
		return r.node(words[1]).Planner()
	case "text": // text FIELD WORDS: the table's text
		return strings.Contains(r.w.Objects.Text()[words[1]], strings.Join(words[2:], " "))
	case "loads": // loads POD N: slots loaded since its start that it did not hold
		return r.node(words[1]).Loads == number(words[2])
	case "handovers": // handovers N: of slots, since the beginning
		return r.w.Counts.Handovers == number(words[1])
	case "holds": // holds POD N: slots listed ahead of their Load since its start
		return r.node(words[1]).Holds == number(words[2])
	case "releases": // releases POD N: slots dropped since its start
		return r.node(words[1]).Releases == number(words[2])
	case "warms": // warms POD N: slots warmed since its start
		return r.node(words[1]).Warms == number(words[2])
	case "conflicts": // some swap met a conflict
		return r.w.Counts.Conflicts > 0
	case "asked": // asked REQUEST: some member has sent one
		return r.w.Messages.Requests[strings.Join(words[1:], " ")] > 0
	case "sent": // sent N REQUEST: all members together have sent that many
		return r.w.Messages.Requests[strings.Join(words[2:], " ")] == number(words[1])
	case "fewer": // fewer N REQUEST: all members together have sent fewer
		return r.w.Messages.Requests[strings.Join(words[2:], " ")] < number(words[1])
	case "astray": // astray POD REQUEST: one was lost
		return r.node(words[1]).Link.Astray(strings.Join(words[2:], " "))
	default:
		panic("no condition " + words[0])
	}
}

package explore

import (
	"fmt"
	"slices"
	"strings"
)

// Scope is a small world, and what may happen in it.
type Scope struct {
	// Name is one word, About a line for people.
	Name, About string
	// Pods and Slots are how many there are, and Duties besides.
	Pods, Slots, Duties int
	// Own: only the first pod can do the last duty.
	Own bool
	// Deadline, Settle and Join are Config.RenewDeadline, SettleDelay and JoinDelay in ticks. A Deadline of 0 means 3. A
	// lease has 4.
	Deadline, Settle, Join int
	// Lazy: warming, loading and draining may take for ever. Otherwise they end before time passes.
	Lazy bool
	// Free: whatever is on its way to a member may be overtaken, but for events of the same watch. Otherwise only what
	// lags is overtaken.
	Free bool
	// Running is how many pods have joined and settled before the search begins.
	Running int
	// From, if not empty, says where the search begins instead:
	//
	//   - drain: one more pod is started, or if all run, the last one leaves. It begins when a slot drains.
	//   - fence: the last pod crashes. It begins when a slot waits for its fence.
	//   - recovery: the table is deleted, unseen by the last pod. It begins when the first pod has waited for a lease.
	From string
	// Gone: an object of the first slot is gone when the slot is first opened, and nobody ever reconciles the deletion.
	Gone bool
	// Orders are what people may ask for by the table, as often as Limits says; see order.go. The last pod is of another
	// build then. Judged: what members report of a canary is bad.
	Orders []string
	Judged bool
	// Faults is how many faults may happen in all; Limits how many actions of each bounded kind.
	Faults uint8
	Limits Limits
	// Within, if above 0, is how many ticks it may take, from any state on, until all is well if nothing goes wrong any
	// more.
	Within int
	// Long: a test run searches its first states only.
	Long bool
}

// Limits are by kind of action.
type Limits [kinds]uint8

// ScopeOf returns the scope of a name.
func ScopeOf(name string) (Scope, bool) {
	i := slices.IndexFunc(Scopes, func(s Scope) bool { return s.Name == name })
	if i < 0 {
		return Scope{}, false
	}
	return Scopes[i], true
}

// String says what may happen in a scope.
func (s Scope) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods, %d of them settled, %d slots", s.Pods, s.Running, s.Slots)
	if s.Duties > 0 {
		fmt.Fprintf(&b, ", %d duties", s.Duties)
	}
	if s.Own {
		b.WriteString(", one of the first pod alone")
	}
	if s.Free {
		b.WriteString(", any order")
	}
	if s.Gone {
		b.WriteString(", a deletion")
	}
	if len(s.Orders) > 0 {
		b.WriteString(", orders: " + strings.Join(s.Orders, ", "))
	}
	if s.Lazy {
		b.WriteString(", slow stores")
	}
	for k := start; k < kinds; k++ {
		if s.Limits[k] > 0 && !slices.Contains(faults, k) {
			fmt.Fprintf(&b, ", %s %d", k, s.Limits[k])
		}
	}
	if s.Faults > 0 {
		fmt.Fprintf(&b, ", %d of", s.Faults)
		for _, k := range faults {
			if s.Limits[k] > 0 {
				fmt.Fprintf(&b, " %s %d", k, s.Limits[k])
			}
		}
	}
	return b.String()
}

// Scopes are the worlds that are searched, the smallest first.
var Scopes = []Scope{
	{
		Name: "join", About: "a second member joins, and a slot is handed over",
		Pods: 2, Slots: 2, Running: 1, Limits: Limits{start: 1}, Within: 1,
	},
	{
		Name: "leave", About: "one member after the other leaves",
		Pods: 2, Slots: 2, Running: 2, Limits: Limits{leave: 2}, Within: 1, Long: true,
	},
	{
		Name: "lose", About: "a request goes astray while a slot drains for one who joins",
		Pods: 2, Slots: 2, Running: 1, From: "drain",
		Limits: Limits{lose: 1}, Faults: 1, Within: 8,
	},
	{
		Name: "gone", About: "a deletion that nobody reconciles goes with its slot, and members leave or crash",
		Pods: 2, Slots: 2, Running: 1,
		From: "drain", Gone: true, Limits: Limits{leave: 1, crash: 1}, Faults: 1, Within: 8,
	},
	{
		Name: "crash", About: "a container crashes, and may be restarted at once", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{crash: 1, restart: 1}, Faults: 1, Within: 6,
	},
	{
		Name: "pause", About: "a process stands still for any time, past its lease too", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{pause: 1}, Faults: 1, Within: 2,
	},
	{
		Name: "late", About: "a deadline passes between a Step and its actions, and a request goes astray",
		Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{lapse: 1, lose: 1}, Faults: 2, Within: 8,
	},
	{
		Name: "lag", About: "the news of a member lag, or a watch breaks",
		Pods: 2, Slots: 2, Running: 2, Limits: Limits{lag: 1, relist: 1}, Faults: 1, Within: 2, Long: true,
	},
	{
		Name: "delete", About: "Leases and the table are deleted by hand", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{dropTable: 1, dropLease: 1}, Faults: 1, Within: 4, Long: true,
	},
	{
		Name: "recovery", About: "the table is deleted, and a member hears of it late",
		Pods: 2, Slots: 2, Running: 2, From: "recovery",
		Within: 3, Long: true,
	},
	{
		Name: "begin", About: "the first start of a rota",
		Pods: 2, Slots: 2, Limits: Limits{start: 2}, Within: 4, Long: true,
	},
	{
		Name: "three", About: "a third member joins two",
		Pods: 3, Slots: 2, Running: 2, Limits: Limits{start: 1}, Within: 1, Long: true,
	},
	{
		Name: "drain", About: "faults while a slot drains for one who joins",
		Pods: 2, Slots: 2, Running: 1, From: "drain", Lazy: true,
		Limits: Limits{crash: 1, pause: 1, lose: 1}, Faults: 1, Within: 6, Long: true,
	},
	{
		Name: "gone2", About: "a deletion goes with its slot, a request goes astray, and members leave",
		Pods: 2, Slots: 2, Running: 1,
		From: "drain", Gone: true, Limits: Limits{leave: 1, lose: 1}, Faults: 1, Within: 8, Long: true,
	},
	{
		Name: "fence", About: "the slot of a dead member waits for the fence, and members come and go",
		Pods: 2, Slots: 2, Running: 2, From: "fence",
		Limits: Limits{restart: 1, leave: 1}, Within: 2, Long: true,
	},
	{
		Name: "join2", About: "a request of one who joins goes astray",
		Pods: 2, Slots: 2, Running: 1, Limits: Limits{start: 1, lose: 1}, Faults: 1, Within: 8, Long: true,
	},
	{
		Name: "crash2", About: "a container crashes, is restarted, and members leave", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{crash: 1, restart: 1, leave: 2}, Faults: 1, Within: 8, Long: true,
	},
	{
		Name: "duty", About: "members that share a duty come and go, and crash",
		Pods: 2, Slots: 1, Duties: 1, Running: 1, Limits: Limits{start: 1, leave: 1, crash: 1}, Faults: 1, Within: 8,
	},
	{
		Name: "duty2", About: "a process with a duty stands still, or crashes, and a request goes astray",
		Pods: 2, Slots: 1, Duties: 2, Own: true, Running: 2,
		Limits: Limits{pause: 1, crash: 1, restart: 1, lose: 1}, Faults: 2, Within: 8, Long: true,
	},
	{
		Name: "order", About: "as join, in any order",
		Pods: 2, Slots: 2, Running: 1, Limits: Limits{start: 1}, Within: 8, Free: true, Long: true,
	},
	{
		Name: "faults", About: "any two faults", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{crash: 2, pause: 2, lose: 2}, Faults: 2, Within: 8, Long: true,
	},
	{
		Name: "drain2", About: "two faults while a slot drains for one who joins",
		Pods: 2, Slots: 2, Running: 1, From: "drain", Lazy: true,
		Limits: Limits{crash: 2, pause: 2, lose: 2, lag: 1}, Faults: 2, Within: 8, Long: true,
	},
	{
		Name: "leave2", About: "two faults while the slot of a leaver drains", Pods: 2, Slots: 2, Running: 2, From: "drain",
		Limits: Limits{crash: 2, pause: 2, lose: 2, lag: 1}, Faults: 2, Within: 8, Long: true,
	},
	{
		Name: "fence2", About: "faults while the slot of a dead member waits for the fence",
		Pods: 2, Slots: 2, Running: 2, From: "fence",
		Limits: Limits{crash: 1, restart: 1, pause: 1, lose: 1, leave: 1}, Faults: 1, Within: 8, Long: true,
	},
	{
		Name: "lost", About: "the table and a Lease are deleted by hand", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{dropTable: 1, dropLease: 1}, Faults: 2, Within: 8, Long: true,
	},
	{
		Name: "relist", About: "watches break, and Leases are deleted by hand", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{pause: 1, lag: 1, relist: 1, dropLease: 1}, Faults: 3, Within: 8, Long: true,
	},
	{
		Name: "delete2", About: "the table is deleted by hand, and something else goes wrong", Pods: 2, Slots: 2, Running: 2,
		Limits: Limits{dropTable: 1, pause: 1, lose: 1, lag: 1}, Faults: 2, Within: 8, Long: true,
	},
	{
		Name: "canary", About: "a canary is started, goes on and back, while a member leaves",
		Pods: 2, Slots: 2, Running: 2, Orders: []string{"canary", "step", "abort"}, Limits: Limits{order: 3, leave: 1},
		Within: 8, Long: true,
	},
	{
		Name: "canary2", About: "a canary is started and is bad, and something goes wrong", Pods: 2, Slots: 2, Running: 2,
		Orders: []string{"canary"}, Judged: true, Limits: Limits{order: 1, crash: 1, restart: 1, pause: 1}, Faults: 1,
		Within: 12, Long: true,
	},
	{
		Name: "promote", About: "a canary's first member joins, and its build is promoted", Pods: 2, Slots: 2, Running: 1,
		Orders: []string{"canary", "promote"}, Limits: Limits{start: 1, order: 2, leave: 1, crash: 1}, Faults: 1, Within: 10,
		Long: true,
	},
	{
		Name: "pin", About: "a slot is pinned to a member that leaves or crashes", Pods: 2, Slots: 2, Running: 2,
		Orders: []string{"pin", "unpin"}, Limits: Limits{order: 2, leave: 1, crash: 1, restart: 1}, Faults: 1, Within: 10,
		Long: true,
	},
	{
		Name: "large", About: "three members, and everything", Pods: 3, Slots: 2, Running: 2,
		Limits: Limits{start: 1, restart: 1, leave: 1, crash: 1, pause: 1, lose: 1, lag: 1, dropTable: 1, dropLease: 1},
		Faults: 2, Within: 12, Long: true,
	},
}

// Package mutant names bugs that can be built into the product on purpose, to see whether its checks find them.
//
// Without the build tag rota_mutants On is a constant false: the compiler drops what asks for it, and nothing of this
// package is left in a program. With the tag the environment variable ROTA_MUTANT says which one bug is there. Never
// ship a program that was built with it.
//
// The place that a bug is in asks On once, and reads like the bug. Clauses of the protocol (member.Clause) are mutants,
// too, by their names, without a place of their own: member.New leaves the chosen one out.
package mutant

// Variable is the environment variable that names the mutant. Without the build tag it means nothing.
const Variable = "ROTA_MUTANT"

// Mutant is the name of a bug; None is no bug.
type Mutant string

// Mutants, by the package that the bug is in.
const (
	None Mutant = ""

	SkipDrain            Mutant = "SkipDrain"
	OpenBeforeLoaded     Mutant = "OpenBeforeLoaded"
	DeadlineFromAnswer   Mutant = "DeadlineFromAnswer"
	SleepIgnored         Mutant = "SleepIgnored"
	EpochNotRaised       Mutant = "EpochNotRaised"
	ExpelByWallClock     Mutant = "ExpelByWallClock"
	ExpelByLaggingWatch  Mutant = "ExpelByLaggingWatch"
	ExpelDespiteConflict Mutant = "ExpelDespiteConflict"
	ResumeOnCachedTable  Mutant = "ResumeOnCachedTable"
	ConflictIsSuccess    Mutant = "ConflictIsSuccess"
	OpenByOldTable       Mutant = "OpenByOldTable"
	LeaveWithoutTransfer Mutant = "LeaveWithoutTransfer"
	GoneNotNamed         Mutant = "GoneNotNamed"
	AdoptWithoutWaiting  Mutant = "AdoptWithoutWaiting"

	InFlightIgnored     Mutant = "InFlightIgnored"
	DeletionsNotAwaited Mutant = "DeletionsNotAwaited"
	GateIgnoresDeadline Mutant = "GateIgnoresDeadline"

	ExpelWithoutPrecondition Mutant = "ExpelWithoutPrecondition"
	SwapWithoutPrecondition  Mutant = "SwapWithoutPrecondition"

	LoadUnlisted          Mutant = "LoadUnlisted"
	OwnedAfterPrimary     Mutant = "OwnedAfterPrimary"
	HandedBehind          Mutant = "HandedBehind"
	StaleListAtActivation Mutant = "StaleListAtActivation"
	CachedLists           Mutant = "CachedLists"
	WatchFromList         Mutant = "WatchFromList"

	WritePastDeadline Mutant = "WritePastDeadline"
	TimeoutUncapped   Mutant = "TimeoutUncapped"
	UnknownIsOver     Mutant = "UnknownIsOver"
	RejoinInFlight    Mutant = "RejoinInFlight"
)

// Info describes a mutant.
type Info struct {
	Mutant Mutant
	// Package is where the bug is.
	Package string
	// About says what goes wrong, in a line.
	About string
}

// All lists the mutants that have a place in the code.
func All() []Info {
	return []Info{
		{SkipDrain, "member", "slots are handed over without a drain"},
		{InFlightIgnored, "gate", "a drain does not wait for what is in flight"},
		{DeletionsNotAwaited, "gate", "a drain does not wait for deletions that are known"},
		{GoneNotNamed, "member", "transfers do not name the deletions that were not reconciled"},
		{OpenBeforeLoaded, "member", "a slot opens before its objects are loaded"},
		{LoadUnlisted, "delivery", "slots count as loaded before their list is in the stores"},
		{OwnedAfterPrimary, "delivery", "slots count as loaded when their primary objects are, owned ones come later"},
		{HandedBehind, "delivery", "slots handed over count as loaded before the versions of their former owner are reached"},
		{StaleListAtActivation, "delivery", "after an expel the list made during the fence's wait counts, without a version read after it"},
		{CachedLists, "delivery", "lists are asked for with resourceVersion=0, so that an API server may answer with old ones"},
		{WatchFromList, "delivery", "a watch that broke goes on from the latest list, over what was not received yet"},
		{DeadlineFromAnswer, "member", "the deadline counts from the answer of a renewal, instead of its sending"},
		{SleepIgnored, "member", "deadlines are measured by a clock that stands still while the machine sleeps"},
		{GateIgnoresDeadline, "gate", "keys are admitted after the deadline"},
		{WritePastDeadline, "rota", "writes are sent after the deadline"},
		{TimeoutUncapped, "rota", "the timeout of a write reaches beyond the deadline"},
		{UnknownIsOver, "rota", "a write of unknown outcome does not count as in flight"},
		{RejoinInFlight, "rota", "an expelled process joins again with writes in flight"},
		{EpochNotRaised, "member", "a change of the table keeps its epoch"},
		{ConflictIsSuccess, "member", "a swap that met a conflict counts as done"},
		{SwapWithoutPrecondition, "store", "a swap has no condition on the version"},
		{OpenByOldTable, "member", "an older version of the table replaces a newer one"},
		{ResumeOnCachedTable, "member", "a lapse ends with a renewal, without reading the table"},
		{ExpelByWallClock, "member", "a member's silence counts while the observer itself does not renew or read"},
		{ExpelByLaggingWatch, "member", "a member's silence counts although the observer's watch lags"},
		{ExpelDespiteConflict, "member", "a Lease that was renewed before it could be deleted counts as deleted"},
		{ExpelWithoutPrecondition, "store", "a Lease is deleted whatever its version"},
		{AdoptWithoutWaiting, "member", "a table is created or adopted at once"},
		{LeaveWithoutTransfer, "member", "a leaver ends without handing over"},
	}
}

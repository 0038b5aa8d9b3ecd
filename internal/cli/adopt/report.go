package adopt

import "fmt"

// Level is the importance of a finding.
type Level string

// Levels, the most important first.
const (
	// Must: with Rota the program would be rejected at its start, or misbehave.
	Must Level = "must"
	// Look: it depends on the program's intent, which a person must judge.
	Look Level = "look"
	// Fine: it may look like a problem but is not.
	Fine Level = "fine"
)

// Finding is something in the source that matters when the operator is sharded.
type Finding struct {
	Level Level `json:"level"`
	// Code is the kind of finding.
	Code string `json:"code"`
	// File is relative to Report.Dir, with slashes, or empty for the operator as a whole. Line is 1 or more, or 0 for the
	// file as a whole.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Text is the finding, Why the reason it matters, and Instead what to write instead. Why and Instead are the same for
	// all findings of a code, unless Instead includes names.
	Text    string `json:"text"`
	Why     string `json:"why"`
	Instead string `json:"instead,omitempty"`
	// Written is true if --write makes the change.
	Written bool `json:"written,omitempty"`
	// Kept explains why --write does not make a change that it makes elsewhere.
	Kept string `json:"kept,omitempty"`
	// Known is the reason from a comment rota:ignore at the finding or its manager. Such a finding is Fine.
	Known string `json:"known,omitempty"`
	// Link is the address of a page with more information.
	Link string `json:"link"`
}

// Manager is a place that makes a manager.
type Manager struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// LeaderElection is "on", "off", "flag" (decided at run time) or "unknown".
	LeaderElection string `json:"leaderElection"`
	// LeaderElectionID is the name of the Lease, if known.
	LeaderElectionID string `json:"leaderElectionID,omitempty"`
	// Adopted is true if it is already made by ctrlrt.NewManager.
	Adopted bool `json:"adopted,omitempty"`
}

// Values of Controller.Becomes.
const (
	// Sharded: it can be built with ctrlrt.NewControllerManagedBy.
	Sharded = "sharded"
	// Duty: it can be built with ctrlrt.NewDutyControllerManagedBy, and runs on one replica at a time.
	Duty = "duty"
	// Stays: it is built on mgr.Whole(), and needs no change.
	Stays = "stays"
	// ByHand: it needs manual changes; the findings explain why.
	ByHand = "by hand"
)

// Controller is a place that builds a controller.
type Controller struct {
	// Name is its name, or else its kind. It is empty if it is only known at run time.
	Name string `json:"name,omitempty"`
	File string `json:"file"`
	Line int    `json:"line"`
	// For, Owns and Watches are its kinds, by package and type.
	For     string   `json:"for,omitempty"`
	Owns    []string `json:"owns,omitempty"`
	Watches []string `json:"watches,omitempty"`
	// Becomes is Sharded, Duty, Stays or ByHand. Reason explains why it is not Sharded.
	Becomes string `json:"becomes"`
	Reason  string `json:"reason,omitempty"`
	// Doubtful is true if it could be sharded, provided that Reason does not matter.
	Doubtful bool `json:"doubtful,omitempty"`
	// Adopted is true if package ctrlrt already builds it.
	Adopted bool `json:"adopted,omitempty"`
}

// Report is the result of Run. Its JSON is the output of `rota adopt -o json`: fields are added, but never renamed or
// removed.
type Report struct {
	Module string `json:"module"`
	Dir    string `json:"dir"`
	// Rota is the name of the future rota.
	Rota string `json:"rota"`
	// ControllerRuntime and ClientGo are the module's selected versions, or empty if it does not use them.
	ControllerRuntime string `json:"controllerRuntime,omitempty"`
	ClientGo          string `json:"clientGo,omitempty"`

	Managers    []Manager    `json:"managers"`
	Controllers []Controller `json:"controllers"`
	Findings    []Finding    `json:"findings"`
	// Must, Look and Fine count the findings.
	Must int `json:"must"`
	Look int `json:"look"`
	Fine int `json:"fine"`
	// Broken lists packages that do not compile, each with its first error. They are not analyzed.
	Broken []string `json:"broken,omitempty"`

	module *module
	// notes are the findings with edits.
	notes []*note
}

// Count counts the controllers with this outcome.
func (r *Report) Count(becomes string) int {
	n := 0
	for _, c := range r.Controllers {
		if c.Becomes == becomes {
			n++
		}
	}
	return n
}

func newFinding(level Level, code, format string, args ...any) Finding {
	e := codes[code]
	return Finding{Level: level, Code: code, Text: fmt.Sprintf(format, args...), Why: e.why, Instead: e.instead,
		Link: Page + "#findings"}
}

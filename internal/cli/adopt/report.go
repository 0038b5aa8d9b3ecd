package adopt

import "fmt"

// Level says how much a finding matters.
type Level string

// Levels, the gravest first.
const (
	// Must: with Rota the program would be refused at its start, or go wrong.
	Must Level = "must"
	// Look: it depends on what the program means, which a person knows.
	Look Level = "look"
	// Fine: it looks as if it mattered, and does not.
	Fine Level = "fine"
)

// Finding is one thing that matters for adopting Rota.
type Finding struct {
	Level Level `json:"level"`
	// Code names what kind of finding it is.
	Code string `json:"code"`
	// File is relative to Report.Dir, with slashes. Line is 1 or more; 0: the file as a whole. Empty: the operator as a
	// whole.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Text says what was found, Why why it matters, Instead what to write instead. The latter two are the same for all
	// findings of a code, but where Instead names what is to be written.
	Text    string `json:"text"`
	Why     string `json:"why"`
	Instead string `json:"instead,omitempty"`
	// Written says that --write makes the change.
	Written bool `json:"written,omitempty"`
	// Kept says why --write leaves it, where it makes such a change elsewhere.
	Kept string `json:"kept,omitempty"`
	// Known is why it is left as it is, from a comment rota:ignore at it or at its manager. Such a finding is Fine.
	Known string `json:"known,omitempty"`
	// Link is the address of the page that has more.
	Link string `json:"link"`
}

// Manager is a place that makes a manager.
type Manager struct {
	File string `json:"file"`
	Line int    `json:"line"`
	// LeaderElection is "on", "off", "flag" (decided when the program runs) or "unknown".
	LeaderElection string `json:"leaderElection"`
	// LeaderElectionID is the name of the Lease, if it can be read.
	LeaderElectionID string `json:"leaderElectionID,omitempty"`
	// Adopted: it is one of ctrlrt.NewManager already.
	Adopted bool `json:"adopted,omitempty"`
}

// What becomes of a controller.
const (
	// Sharded: it can be built with ctrlrt.NewControllerManagedBy.
	Sharded = "sharded"
	// Duty: it can be built with ctrlrt.NewDutyControllerManagedBy, and one replica at a time runs it.
	Duty = "duty"
	// Stays: it is built on mgr.Whole(), and stays as it is.
	Stays = "stays"
	// ByHand: neither is possible as it is written; the findings say why.
	ByHand = "by hand"
)

// Controller is a place that builds a controller.
type Controller struct {
	// Name is its name, or its kind where it has none. Empty: it is not known before the program runs.
	Name string `json:"name,omitempty"`
	File string `json:"file"`
	Line int    `json:"line"`
	// For, Owns and Watches are its kinds, by package and type.
	For     string   `json:"for,omitempty"`
	Owns    []string `json:"owns,omitempty"`
	Watches []string `json:"watches,omitempty"`
	// Becomes is Sharded, Duty, Stays or ByHand, and Reason says why it is not Sharded.
	Becomes string `json:"becomes"`
	Reason  string `json:"reason,omitempty"`
	// Doubtful: it could be sharded, if what Reason says does not matter.
	Doubtful bool `json:"doubtful,omitempty"`
	// Adopted: it is one of package ctrlrt already.
	Adopted bool `json:"adopted,omitempty"`
}

// Report is what was found. Its JSON is what `rota adopt -o json` prints: fields are added, but neither renamed nor
// removed.
type Report struct {
	Module string `json:"module"`
	Dir    string `json:"dir"`
	// Rota is the name that the rota would have.
	Rota string `json:"rota"`
	// ControllerRuntime and ClientGo are the versions that the module selects; empty: it does not use that.
	ControllerRuntime string `json:"controllerRuntime,omitempty"`
	ClientGo          string `json:"clientGo,omitempty"`

	Managers    []Manager    `json:"managers"`
	Controllers []Controller `json:"controllers"`
	Findings    []Finding    `json:"findings"`
	// Must, Look and Fine count the findings.
	Must int `json:"must"`
	Look int `json:"look"`
	Fine int `json:"fine"`
	// Broken are packages that do not compile, each with its first error. Nothing is said of them.
	Broken []string `json:"broken,omitempty"`

	module *module
	// notes are the findings with edits.
	notes []*note
}

// Count returns how many controllers become one thing.
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

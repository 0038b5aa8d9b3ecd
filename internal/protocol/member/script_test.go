package member_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/sim"
)

// A script is a text file that drives a small rota: one command a line, # for comments. The world is calm: every way to
// the API server takes a millisecond, clocks agree, and nothing is reconciled but what the script begins. All checks of
// package sim are on throughout.
//
//	clause NAME prevents RULE   without that clause of the protocol the script fails by that check of package sim
//	                            ("wait": by a wait or expect of the script itself); package mutant leaves out some
//	slots N, key Namespace
//	many N                      duties at most
//	byload                      slots are planned by load
//	outlives                    work goes on until its member's deadline, whatever happens to the member
//	start POD... [build=B] [format=N] [duties=X,Y] [labels=N=V] [by=number]    new pods; restart POD: the next process in the same container; twin POD: another pod of that name
//	crash, leave, pause, sleep, resume POD...
//	halt POD ACTION             the process stops before the next action of a type, such as Deadline, after the Step that asks for it
//	advance 5s                  let time pass; settle 60s: until nothing is left to do
//	hold, release POD REQUEST   keep requests of a name back; see the names in package sim ("update table", "warm" …)
//	stale POD                   from now on it answers drains so: others may have written in the slots
//	lose POD REQUEST            the next one is of unknown outcome; admit POD REQUEST: it takes effect now
//	block, unblock, relist POD tables|leases; deliver POD tables N
//	down, up                    the API server
//	edit FIELD TEXT             a field of the table, by hand
//	delete table | lease POD | leases; save; restore; overwrite    the table as it was saved, under a new or its own UID
//	busy SLOTS N                each of them keeps N thousandths of a worker busy from now on
//	mute, unmute POD            it publishes no new report
//	tries BUILD N FAILED MS     what each of its members reports of a canary's step from now on
//	stick POD DUTY              it does not return when it should, until land POD DUTY
//	order pause|resume|rebalance, order drain|undrain POD    what people ask for by the table
//	order canary BUILD STEPS EVERY [NAMESPACES], order promote|abort|end, order pin SLOT LABELS, order unpin SLOT
//	fly, land POD SLOT          reconcile a key; write POD SLOT 3s [unfenced]: it writes, which commits 3s later
//	long POD 20s                it asks for writes that take longer than the write timeout, until then
//	remove, reconcile POD SLOT  delete a key's object, reconcile that; hand POD SLOT: it is left to the next owner
//	expect [not] CONDITION      now; wait 5s [not] CONDITION: within; never 5s CONDITION: not once
//	let $NAME POD [NEXT]        the first slot that POD owns, and that moves to NEXT, where that is given
//	repeat N … end
type script struct {
	file  string
	lines []string
}

// run is one run of a script.
type run struct {
	w     *sim.World
	saved map[string]string
	vars  map[string]string
	// duties are the slots of duties when they were last asked for.
	duties map[string]slot.Slot
	// busy are the loads of slots, numbers the pods that plan by number.
	busy    map[slot.Slot]int64
	numbers map[string]bool
	// tallies are what members of a build report of a canary's step.
	tallies map[string]trial.Side
	trace   []string
}

// Every rule that lives in members has its scripts, in files whose names start with it.

func TestR01Heartbeat(t *testing.T) { scripts(t, "R01") }
func TestR02Deadline(t *testing.T)  { scripts(t, "R02") }
func TestR03Planners(t *testing.T)  { scripts(t, "R03") }
func TestR04Table(t *testing.T)     { scripts(t, "R04") }
func TestR05Gate(t *testing.T)      { scripts(t, "R05") }
func TestR06Transfer(t *testing.T)  { scripts(t, "R06") }
func TestR07Expel(t *testing.T)     { scripts(t, "R07") }
func TestR08Activate(t *testing.T)  { scripts(t, "R08") }
func TestR09Leave(t *testing.T)     { scripts(t, "R09") }
func TestR12Token(t *testing.T)     { scripts(t, "R12") }
func TestR13Lapse(t *testing.T)     { scripts(t, "R13") }
func TestR15Deletions(t *testing.T) { scripts(t, "R15") }
func TestR16TableLost(t *testing.T) { scripts(t, "R16") }
func TestR17Plan(t *testing.T)      { scripts(t, "R17") }
func TestR18Duties(t *testing.T)    { scripts(t, "R18") }
func TestR19Orders(t *testing.T)    { scripts(t, "R19") }
func TestR21Loads(t *testing.T)     { scripts(t, "R21") }
func TestR22Places(t *testing.T)    { scripts(t, "R22") }

// scripts runs the scripts of a rule.
func scripts(t *testing.T, rule string) {
	files, err := filepath.Glob("testdata/" + rule + "_*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		s := readScript(t, file)
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(strings.TrimPrefix(name, rule+"_"), func(t *testing.T) {
			t.Parallel()
			r, err := s.run()
			if r.w.Failed() {
				t.Fatalf("violated: %v\n%s", r.w.Violations()[0], r.tail())
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, r.tail())
			}
		})
	}
}

func readScript(t *testing.T, file string) *script {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	s := &script{file: file}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line, _, _ := strings.Cut(sc.Text(), "#")
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "clause ") {
			line = ""
		}
		s.lines = append(s.lines, line)
	}
	return s
}

func newRun() *run {
	return &run{
		vars: map[string]string{}, duties: map[string]slot.Slot{}, busy: map[slot.Slot]int64{}, numbers: map[string]bool{},
		tallies: map[string]trial.Side{},
	}
}

// byLoad has members plan by load.
func (r *run) byLoad(c *member.Config) { c.ByLoad = !r.numbers[c.Self.Pod] }

func (r *run) load(_ string, s slot.Slot, _ time.Duration) int64 { return r.busy[s] }

func (s *script) run() (*run, error) {
	r := newRun()
	slots, duties, key := slot.Count(8), 0, slot.KeyName
	var tune func(*member.Config)
	for _, line := range s.lines {
		if n, ok := strings.CutPrefix(line, "slots "); ok {
			i, _ := strconv.Atoi(n)
			slots = slot.Count(i)
		}
		if n, ok := strings.CutPrefix(line, "many "); ok {
			duties, _ = strconv.Atoi(n)
		}
		if line == "key Namespace" {
			key = slot.KeyNamespace
		}
		if line == "outlives" {
			tune = func(c *member.Config) { c.Outlives = true }
		}
		if line == "byload" {
			tune = r.byLoad
		}
	}
	r.w = sim.New(sim.Options{
		Slots: slots, Duties: duties, Tune: func(c *member.Config) {
			c.Key = key
			if tune != nil {
				tune(c)
			}
		},
		Load:  r.load,
		Trial: func(rep *sim.Replica, _ time.Duration) trial.Side { return r.tallies[rep.Build] },
		Trace: func(line string) { r.trace = append(r.trace, line) },
	})
	defer r.w.End()
	return r, r.lines(s.file, s.lines, 0)
}

func (r *run) lines(file string, lines []string, first int) error {
	for i := 0; i < len(lines) && !r.w.Failed(); i++ {
		words := strings.Fields(lines[i])
		if len(words) == 0 {
			continue
		}
		if words[0] == "repeat" {
			length := slices.Index(lines[i:], "end")
			for range number(words[1]) {
				if err := r.lines(file, lines[i+1:i+length], first+i+1); err != nil {
					return err
				}
			}
			i += length
			continue
		}
		r.trace = append(r.trace, fmt.Sprintf("%d: %s", first+i+1, lines[i]))
		for j, word := range words {
			if value, ok := r.vars[word]; ok && words[0] != "let" {
				words[j] = value
			}
		}
		if err := r.command(words); err != nil {
			return fmt.Errorf("%s:%d: %s: %w", file, first+i+1, lines[i], err)
		}
	}
	return nil
}

// tail is the end of the trace; all of it with SCRIPT_TRACE=all.
func (r *run) tail() string {
	if os.Getenv("SCRIPT_TRACE") != "" {
		return strings.Join(r.trace, "\n")
	}
	return strings.Join(r.trace[max(0, len(r.trace)-120):], "\n")
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

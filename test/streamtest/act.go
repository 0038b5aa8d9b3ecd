package streamtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/slot"
)

// kind is what may happen in a world.
type kind uint8

const (
	// rest: nothing happens.
	rest kind = iota

	// The server changes.

	// create makes the object of a name in a slot, with a label.
	create
	// update gives it a slot and a label, or the same ones again. Without in it lies nowhere.
	update
	// remove deletes it.
	remove

	// What the member does.

	// hold sets the slots that are wanted, renew asks for a fresh list of some.
	hold
	renew
	// drive does the next part of the task that is under way, or begins one.
	drive

	// What the stream is told.

	// begin makes a list of the whole. commit has it replace the store, and n changes after it, as with WatchList.
	begin
	commit
	// deliver has the watch tell of the next change that it selects, bookmark how far it is. reopen has it go on from
	// the position, for the slots that are needed now.
	deliver
	bookmark
	reopen
	// ask looks up what is due; with n 1, it waits until every doubt is. answer brings answer n.
	ask
	answer

	// wait lets n milliseconds pass.
	wait

	kinds
)

var kindNames = [kinds]string{
	"rest", "create", "update", "remove", "hold", "renew", "drive",
	"begin", "commit", "deliver", "bookmark", "reopen", "ask", "answer", "wait",
}

func (k kind) String() string { return kindNames[k] }

// change says that the server changes.
func (k kind) change() bool { return k == create || k == update || k == remove }

// act is one step of a world.
type act struct {
	kind        kind
	name        uint8
	slot, label uint8
	in          bool
	set         set
	n           uint16
}

// set is a set of slots, the first of them in the lowest bit.
type set uint8

func (s set) slots() slot.Set {
	var out slot.Set
	for n := range 8 {
		if s&(1<<n) != 0 {
			out.Add(slot.Slot(n))
		}
	}
	return out
}

// String returns what parse reads.
func (a act) String() string {
	switch a.kind {
	case create, update:
		text := fmt.Sprintf("%v name=%d slot=%d label=%d", a.kind, a.name, a.slot, a.label)
		if !a.in {
			text += " nowhere"
		}
		return text
	case remove:
		return fmt.Sprintf("%v name=%d", a.kind, a.name)
	case hold, renew:
		return fmt.Sprintf("%v set=%b", a.kind, a.set)
	case commit, ask, answer, wait:
		if a.n > 0 {
			return fmt.Sprintf("%v n=%d", a.kind, a.n)
		}
	default:
	}
	return a.kind.String()
}

// parse reads acts, one to a line. Lines that begin with # do not count.
func parse(text string) ([]act, error) {
	var acts []act
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		k := slices.Index(kindNames[:], words[0])
		if k < 0 {
			return nil, fmt.Errorf("there is no act %q", words[0])
		}
		a := act{kind: kind(k), in: true} // below kinds
		for _, word := range words[1:] {
			if err := a.read(word); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		if a.kind != create && a.kind != update {
			a.in = false
		}
		acts = append(acts, a)
	}
	return acts, nil
}

// read reads one parameter.
func (a *act) read(word string) error {
	key, text, _ := strings.Cut(word, "=")
	if key == "nowhere" {
		a.in = false
		return nil
	}
	base := 10
	if key == "set" {
		base = 2
	}
	bits := 8
	if key == "n" {
		bits = 16
	}
	value, err := strconv.ParseUint(text, base, bits)
	if err != nil {
		return err
	}
	small := uint8(value) // of 8 bits, but for n
	switch key {
	case "name":
		a.name = small
	case "slot":
		a.slot = small
	case "label":
		a.label = small
	case "set":
		a.set = set(small)
	case "n":
		a.n = uint16(value) // of 16 bits
	default:
		return fmt.Errorf("there is no parameter %q", key)
	}
	return nil
}

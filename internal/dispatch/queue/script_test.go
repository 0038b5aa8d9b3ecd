package queue_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

// A script is a conversation with a queue of 8 slots and the kinds Pod and Site. Its commands:
//
//	at TIME                                  time passes; the queue is asked whenever it wants to wake
//	deadline TIME                            the member's
//	hold SLOTS, open SLOTS EPOCH, drain SLOTS, shut SLOTS, gone SLOTS
//	change KIND NAMESPACE/NAME [slot=N] [recent|opened] [gone] [v=VERSION] [related]
//	poll WORKER MAX [kinds=A,B] [wait=TIME] [length=TIME] [affine]
//	stream WORKER CREDIT [kinds=A,B] [length=TIME] [affine], more ASK N, claim ASK N, cancel ASK
//	done WORKER TAKE [retry] [after=TIME], release WORKER TAKE, extend WORKER TAKE [length=TIME]
//	stats
//	most KIND N                              keys may be taken at a time; these are the script's first commands
//
// What the queue answers follows each command, indented. `go test ./dispatch -update` writes it.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			golden.File(t, file, transcript(t, string(text)))
		})
	}
}

type script struct {
	t    *testing.T
	q    *queue.Queue
	now  time.Duration
	asks uint64
	out  bytes.Buffer
}

func transcript(t *testing.T, text string) string {
	cfg := queue.Config{Slots: 8, Kinds: []string{"Pod", "Site"}, MaxTaken: map[string]int{}}
	s := &script{t: t}
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "most" {
			cfg.MaxTaken[words[1]] = s.number(words[2])
		}
	}
	var err error
	if s.q, err = queue.New(cfg); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "    ") {
			continue
		}
		s.out.WriteString(line)
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			s.do(strings.Fields(line))
			s.act()
		}
	}
	return s.out.String()
}

func (s *script) say(format string, args ...any) {
	fmt.Fprintf(&s.out, "    "+format+"\n", args...)
}

func (s *script) must(err error) {
	if err != nil {
		s.say("error: %v", err)
	}
}

func (s *script) act() {
	for _, a := range s.q.Actions(s.now) {
		switch a := a.(type) {
		case queue.Given:
			text := fmt.Sprintf("%v: ask %d", s.now, a.Ask)
			if a.Over && len(a.Takes) == 0 {
				s.say("%s: nothing", text)
			}
			for _, t := range a.Takes {
				state := ""
				if t.Gone {
					state += " gone"
				}
				if t.Attempt > 1 {
					state += fmt.Sprint(" attempt ", t.Attempt)
				}
				if t.Version != "" {
					state += " v=" + t.Version
				}
				s.say("%s, %s: take %d of %s, %v%s, until %v, epoch %d", text, t.Worker, t.ID, t.Key, t.Class, state, t.Deadline,
					t.Epoch)
			}
		case queue.Drained:
			s.say("%v: drained %v", s.now, a.Slots)
		}
	}
}

// option returns the value of NAME=VALUE.
func option(words []string, name string) string {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			return v
		}
		if w == name {
			return "yes"
		}
	}
	return ""
}

func (s *script) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	require.NoError(s.t, err)
	return d
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(s.t, err)
	return n
}

func (s *script) slots(text string) slot.Set {
	set, err := slot.ParseSet(text)
	require.NoError(s.t, err)
	return set
}

func (s *script) do(w []string) {
	switch w[0] {
	case "at":
		until := s.duration(w[1])
		for i := 0; s.q.Wake() <= until; i++ {
			if i > 1000 {
				s.t.Fatalf("at %v it wants to wake at %v again and again", s.now, s.q.Wake())
			}
			s.now = max(s.now, s.q.Wake())
			s.act()
		}
		s.now = until
	case "deadline":
		s.q.SetDeadline(s.now, s.duration(w[1]))
	case "open":
		s.q.Open(s.now, s.slots(w[1]), uint64(s.number(w[2]))) // scripts have no negative epochs
	case "hold":
		s.q.Hold(s.now, s.slots(w[1]))
		s.say("held %v", s.q.Held())
	case "drain":
		s.q.Drain(s.now, s.slots(w[1]))
	case "shut":
		s.q.Shut(s.now, s.slots(w[1]))
	case "gone":
		for _, c := range s.q.Gone(s.slots(w[1])) {
			s.say("%s", c.Key)
		}
	case "change":
		s.change(w)
	case "poll", "stream":
		s.ask(w)
	case "more":
		s.must(s.q.More(s.now, uint64(s.number(w[1])), s.number(w[2])))
	case "claim":
		s.say("room for %d", s.q.Claim(s.now, uint64(s.number(w[1])), s.number(w[2])))
	case "cancel":
		s.q.Cancel(s.now, uint64(s.number(w[1])))
	case "done", "release", "extend":
		s.end(w)
	case "most": // see transcript
	case "stats":
		for _, k := range s.q.Stats() {
			s.say("{Kind:%s Ready:%d Delayed:%d Taken:%d Oldest:%v}", k.Kind, k.Ready, k.Delayed, k.Taken, k.Oldest)
		}
		s.say("%+v", s.q.Counts())
	default:
		s.t.Fatalf("unknown command %q", w[0])
	}
}

func (s *script) change(w []string) {
	namespace, name, _ := strings.Cut(w[2], "/")
	c := queue.Change{
		Key: queue.Key{Kind: w[1], Namespace: namespace, Name: name}, Gone: option(w, "gone") != "",
		Version: option(w, "v"), Related: option(w, "related") != "",
	}
	switch {
	case option(w, "recent") != "":
		c.Class = queue.Recent
	case option(w, "opened") != "":
		c.Class = queue.Opened
	}
	if n := option(w, "slot"); n != "" {
		c.Slot = slot.Slot(s.number(n))
	}
	s.must(s.q.Change(s.now, c))
}

func (s *script) ask(w []string) {
	s.asks++
	a := queue.Ask{
		ID: s.asks, Worker: w[1], Max: s.number(w[2]), Until: s.now + s.duration(option(w, "wait")),
		Length: s.duration(option(w, "length")), Affine: option(w, "affine") != "", Stream: w[0] == "stream",
	}
	if kinds := option(w, "kinds"); kinds != "" {
		a.Kinds = strings.Split(kinds, ",")
	}
	s.must(s.q.Ask(s.now, a))
}

func (s *script) end(w []string) {
	id := uint64(s.number(w[2]))
	switch w[0] {
	case "done":
		r := queue.Result{Retry: option(w, "retry") != "", After: s.duration(option(w, "after"))}
		s.must(s.q.Done(s.now, id, w[1], r))
	case "release":
		s.must(s.q.Release(s.now, id, w[1]))
	case "extend":
		e, err := s.q.Extend(s.now, id, w[1], s.duration(option(w, "length")))
		if s.must(err); err == nil {
			s.say("until %v, draining %v", e.Deadline, e.Draining)
		}
	}
}

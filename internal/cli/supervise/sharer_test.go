package supervise

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// fakeProgram is a process that exits when it gets SIGKILL, or SIGTERM unless it is stubborn.
type fakeProgram struct {
	stubborn bool
	signals  []syscall.Signal
	over     chan struct{}
}

func (p *fakeProgram) pid() int { return 0 }

func (p *fakeProgram) signal(s syscall.Signal) {
	p.signals = append(p.signals, s)
	if s == syscall.SIGKILL || !p.stubborn {
		p.exit()
	}
}

func (p *fakeProgram) exit() {
	if !closed(p.over) {
		close(p.over)
	}
}

func (p *fakeProgram) exited() <-chan struct{} { return p.over }

func (p *fakeProgram) done() <-chan struct{} { return p.over }

func (p *fakeProgram) code() int { return 3 }

// desk is a sharer whose time stands still, and whose processes are fakes that the test speaks for.
type desk struct {
	*sharer
	t     *testing.T
	now   time.Duration
	all   []*fakeProgram
	given []string
}

const testStop, testFence = 20 * time.Second, 30 * time.Second

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, now: time.Second}
	now := func() time.Duration { return d.now }
	about := share{count: 4, key: slot.KeyName, kinds: []schema.GroupKind{{Kind: "ConfigMap"}}}
	d.sharer = newSharer(sharerEnv{
		processesEnv: processesEnv{
			Kinds: []string{"ConfigMap"}, StopTimeout: testStop, FenceDelay: testFence, Late: now, Now: now, Log: testr.New(t),
			Start: func(line) program {
				d.all = append(d.all, &fakeProgram{over: make(chan struct{})})
				return d.all[len(d.all)-1]
			},
		},
		Line: line{args: []string{"program"}}, Hello: hello{Type: "hello"}, About: about.describe,
		Monotonic: time.Duration.Seconds,
		Sleep:     await.Sleep,
	})
	d.SetDeadline(time.Hour)
	d.look()
	d.connects()
	return d
}

// connects has the present process connect, and read what every process is sent first.
func (d *desk) connects() {
	d.t.Helper()
	if _, err := d.connect(); err != nil {
		d.t.Fatal(err)
	}
}

// reads returns what the process was sent, a word for each message: its type and slot.
func (d *desk) reads() (words []string, last message) {
	d.t.Helper()
	out, _ := d.pending(d.starts)
	for text := range strings.Lines(string(out)) {
		var m message
		require.NoError(d.t, json.Unmarshal([]byte(text), &m))
		if m.Type == "hello" || m.Type == msgDeadline {
			continue
		}
		words, last = append(words, fmt.Sprintf("%s %d", m.Type, *m.Slot)), m
	}
	return words, last
}

// wants fails unless the process was sent these messages, and returns the last one.
func (d *desk) wants(words ...string) message {
	d.t.Helper()
	got, last := d.reads()
	if !slices.Equal(got, words) {
		d.t.Fatalf("the program reads %q, want %q", got, words)
	}
	return last
}

// answers has the process answer a message.
func (d *desk) answers(kind string, to message, gone ...deletion) {
	d.t.Helper()
	require.NoError(d.t, d.receive(d.starts, encode(answer{Type: kind, Slot: *to.Slot, Seq: to.Seq, Gone: gone})))
}

// loads calls Load for a slot. The returned function waits until it has returned.
func (d *desk) loads(n slot.Slot, gone ...table.Gone) (returned func()) {
	done := make(chan error, 1)
	go func() { done <- d.Load(d.t.Context(), one(n), true, gone) }()
	for d.t.Context().Err() == nil { // until it has begun
		d.mu.Lock()
		of := d.slots[n]
		begun := of != nil && of.want == msgLoad
		d.mu.Unlock()
		if begun {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return func() {
		d.t.Helper()
		select {
		case err := <-done:
			require.NoError(d.t, err)
		case <-time.After(hang):
			d.t.Fatal("Load does not return")
		}
	}
}

// opens loads and opens a slot.
func (d *desk) opens(n slot.Slot) {
	d.t.Helper()
	returned := d.loads(n)
	d.answers("loaded", d.wants(fmt.Sprintf("load %d", n)))
	returned()
	d.Open(one(n), 7)
	d.wants(fmt.Sprintf("open %d", n))
}

func (d *desk) drains(n slot.Slot) {
	d.Drain(one(n), func(n slot.Slot, gone []table.Gone) { d.given = append(d.given, fmt.Sprint(n, gone)) })
}

// gives fails unless these slots, with these deletions, have been given up by now.
func (d *desk) gives(want ...string) {
	d.t.Helper()
	d.look()
	if !slices.Equal(d.given, want) {
		d.t.Fatalf("given up: %q, want %q", d.given, want)
	}
}

func one(n slot.Slot) slot.Set { return slot.SetOf(slot.Range{First: n, Last: n}) }

// A slot is loaded, opened, drained and shut, and each step waits for the answer. Deletions go along.
func TestSharedSlot(t *testing.T) {
	d := newDesk(t)
	warm := make(chan error, 1)
	go func() { warm <- d.Warm(t.Context(), one(1)) }()
	var m message
	for words := []string(nil); len(words) == 0; words, m = d.reads() {
		time.Sleep(time.Millisecond)
	}
	if m.Type != msgWarm || !strings.Contains(m.Selectors["ConfigMap"], " in (") ||
		!slices.Equal(m.Hashes, []string{"4000000000000000", "7fffffffffffffff"}) {
		t.Errorf("%+v", m)
	}
	d.answers("warmed", m)
	require.NoError(t, <-warm)

	returned := d.loads(1, table.Gone{Slot: 1, Kind: "ConfigMap", Namespace: "x", Name: "y"})
	m = d.wants("load 1")
	if want := []deletion{{"ConfigMap", "x", "y"}}; !slices.Equal(m.Gone, want) {
		t.Errorf("deletions %v, want %v", m.Gone, want)
	}
	d.answers("loaded", m)
	returned()
	d.Open(one(1), 7)
	if m = d.wants("open 1"); m.Epoch != 7 {
		t.Errorf("epoch %d", m.Epoch)
	}
	d.drains(1)
	m = d.wants("drain 1")
	d.gives()
	if f := d.Flights(0); len(f) != 1 || f[0].Slot != 1 {
		t.Errorf("flights %v", f)
	}
	d.answers("drained", m, deletion{"ConfigMap", "x", "z"})
	d.gives("1 [{1 ConfigMap x z}]")
	d.Shut(one(1))
	d.wants("shut 1")
	if len(d.Flights(0)) > 0 || len(d.all[0].signals) > 0 {
		t.Errorf("flights %v, signals %v", d.Flights(0), d.all[0].signals)
	}

	d.given = nil
	_ = d.loads(2, table.Gone{Slot: 2, Kind: "ConfigMap", Name: "y"})
	d.wants("load 2")
	d.drains(2) // it has to move on before it is loaded
	d.gives("2 [{2 ConfigMap  y}]")
	d.Shut(one(2))
	d.wants("shut 2")
}

// A Load that comes late does not take an open slot from the process.
func TestLateLoad(t *testing.T) {
	d := newDesk(t)
	d.opens(1)
	require.NoError(t, d.Load(t.Context(), one(1), true, nil))
	d.wants()
	d.drains(1)
	d.answers("drained", d.wants("drain 1"))
	d.gives("1 []")
}

// An answer that another message has overtaken is ignored.
func TestOvertakenAnswers(t *testing.T) {
	d := newDesk(t)
	d.opens(1)
	d.drains(1)
	drain := d.wants("drain 1")
	d.Open(one(1), 8)
	d.wants("open 1")
	d.answers("drained", drain)
	d.gives()
	d.drains(1)
	again := d.wants("drain 1")
	d.answers("drained", drain)
	d.gives()
	d.answers("drained", again)
	d.answers("drained", again) // twice
	d.gives("1 []")
	d.Open(one(1), 9) // it stays after all
	d.wants("open 1")

	first := d.loads(2)
	load := d.wants("load 2")
	second := d.loads(2) // another member may have worked since
	for words := []string(nil); len(words) == 0; words, _ = d.reads() {
		time.Sleep(time.Millisecond)
	}
	d.answers("loaded", load)
	d.Shut(one(2))
	d.wants("shut 2")
	first()
	second()
}

// What no program may answer ends it.
func TestLies(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"drained","slot":1,"seq":99}`:                                      "there was no question with this seq",
		`{"type":"drained","slot":1}`:                                               "there was no question with this seq",
		`{"type":"drained","slot":2,"seq":2}`:                                       "the answer to load is loaded",
		`{"type":"drained","slot":70000,"seq":2}`:                                   "cannot unmarshal",
		`{"type":"loaded","slot":2,"seq":2}{"type":"x"}`:                            "more than one message",
		`{"type":"loaded","slot":2,"seq":2,"extra":1}`:                              "unknown field",
		`{"type":"drained","slot":1,"seq":3,"gone":[{"kind":"Secret","name":"x"}]}`: "one of the kinds [ConfigMap]",
		`{"type":"drained","slot":1,"seq":3,"gone":[{"kind":"ConfigMap"}]}`:         "a deletion has a name",
		`hello`: "invalid character",
	} {
		d := newDesk(t)
		d.opens(1)
		go func() { _ = d.Load(t.Context(), one(2), true, nil) }()
		for words := []string(nil); len(words) == 0; words, _ = d.reads() {
			time.Sleep(time.Millisecond)
		}
		d.drains(1)
		err := d.receive(d.starts, []byte(text))
		require.ErrorSays(t, err, want)
		d.disconnect(d.starts, err)
		d.look()
		if code := <-d.exits(); code != 1 || !slices.Equal(d.all[0].signals, []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("%s: code %d, signals %v", text, code, d.all[0].signals)
		}
		d.gives()
		d.now += testFence + time.Second
		d.gives("1 []")
	}
}

// A program that does not drain is ended when the member leaves, first with SIGTERM, and its slots wait for what it may
// have written last.
func TestSilence(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		d := newDesk(t)
		d.opens(1)
		d.all[0].stubborn = stubborn
		d.drains(1)
		d.now += 10 * testStop
		d.gives() // it may take its time
		d.leave()
		d.now += testStop
		d.gives()
		if !slices.Equal(d.all[0].signals, []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("signals %v", d.all[0].signals)
		}
		if stubborn {
			d.now += testStop
			d.gives()
		}
		d.look() // which notices that it has exited
		d.now += testFence
		d.gives()
		d.now++
		d.gives("1 []")
		if len(d.all) > 1 {
			t.Error("it was started again")
		}
	}
}

// A program that lost the Lease, or slots that it works on, is killed. The next one gets all messages from the
// beginning.
func TestLapseOfASharedProgram(t *testing.T) {
	for name, lose := range map[string]func(*desk){
		"lapse": func(d *desk) {
			d.now = 2 * time.Hour
			d.look()
			d.SetDeadline(3 * time.Hour)
		},
		"exit at the deadline": func(d *desk) {
			d.now = 2 * time.Hour
			d.all[0].exit()
			d.look()
			d.SetDeadline(3 * time.Hour)
		},
		"shut": func(d *desk) {
			d.Shut(one(1))
			d.look()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.opens(1)
			lose(d)
			d.look()
			if len(d.all) != 2 || !closed(d.all[0].over) {
				t.Fatalf("%d processes", len(d.all))
			}
			d.connects()
			var m message
			if name == "shut" {
				d.wants()
				d.Open(one(1), 9) // without Load, as for slots that are this member's still
			}
			m = d.wants("load 1")
			d.answers("loaded", m)
			d.wants() // the last write of the former process may be under way
			d.now += testFence + time.Second
			d.look()
			d.wants("open 1")
		})
	}
}

// A program that closes its connection and goes on is ended; one that exits ends the member with its code.
func TestDisconnect(t *testing.T) {
	d := newDesk(t)
	d.opens(1)
	if _, err := d.connect(); err == nil {
		t.Error("two connections")
	}
	d.disconnect(d.starts, nil)
	d.look()
	d.now += closeGrace
	d.look()
	if code := <-d.exits(); code != 1 {
		t.Errorf("code %d", code)
	}
	d = newDesk(t)
	d.disconnect(d.starts, nil)
	d.all[0].exit()
	d.look()
	if code := <-d.exits(); code != 3 {
		t.Errorf("code %d", code)
	}
	d.look()
	if len(d.all) != 1 {
		t.Error("it was started again")
	}
}

// The messages in docs/run.md have the fields that are sent and accepted.
func TestProtocolPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/run.md")
	require.NoError(t, err)
	types := map[string]bool{}
	for _, text := range regexp.MustCompile(`\{"type":"[^\n|`+"`"+`]*\}`).FindAllString(string(page), -1) {
		text = strings.NewReplacer("{…}", "{}", "[…]", "[]").Replace(text)
		var named struct{ Type string }
		require.NoError(t, json.Unmarshal([]byte(text), &named))
		types[named.Type] = true
		into := any(&message{})
		switch named.Type {
		case "hello":
			into = &hello{}
		case "warmed", "loaded", "drained":
			into = &answer{}
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, name := range []string{"hello", msgWarm, msgLoad, msgOpen, msgDrain, msgShut, msgDeadline, "warmed", "loaded",
		"drained"} {
		if !types[name] {
			t.Errorf("docs/run.md does not show %s", name)
		}
	}
}

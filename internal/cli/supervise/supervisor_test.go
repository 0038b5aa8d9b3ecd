package supervise

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// hang is how long a test waits for something that does not come.
const hang = 2 * time.Minute

// bench is a supervisor of shell scripts, which note what they do in a file.
type bench struct {
	*supervisor
	t    *testing.T
	file string

	mu    sync.Mutex
	now   time.Duration // on the deadline clock
	given slot.Set      // slots that were drained
}

const (
	// polite exits at SIGTERM.
	polite = `trap 'echo "end $0" >> "$1"; exit 0' TERM; echo "begin $0 $$" >> "$1"; while :; do sleep 0.02; done`
	// slow exits at SIGTERM, before its child, which has something left to do.
	slow = `sh -c 'trap "sleep 0.2; echo \"end $0\" >> \"$1\"; exit 0" TERM; echo "begin $0 $$" >> "$1"
		while :; do sleep 0.02; done' "$0" "$1" &
		trap 'exit 0' TERM; while :; do sleep 0.02; done`
	// stubborn ignores SIGTERM, as does its child.
	stubborn = `trap '' TERM; sh -c "sleep 1000" & echo "begin $0 $!" >> "$1"; while :; do sleep 0.02; done`
)

func newBench(t *testing.T, script string, change func(*supervisorEnv)) *bench {
	t.Helper()
	if err := adopt(); err != nil {
		t.Skip(err)
	}
	b := &bench{t: t, file: filepath.Join(t.TempDir(), "log")}
	began := time.Now()
	env := supervisorEnv{
		processesEnv: processesEnv{
			StopTimeout: hang, Log: testr.New(t), Now: func() time.Duration { return time.Since(began) },
			Start: func(l line) program { return start(l, os.Stdout, os.Stderr) },
			Late: func() time.Duration {
				b.mu.Lock()
				defer b.mu.Unlock()
				return b.now
			},
		},
		Line: func(set slot.Set) (line, bool, error) {
			return line{args: []string{"sh", "-c", script, set.String(), b.file}}, true, nil
		},
	}
	if change != nil {
		change(&env)
	}
	b.supervisor = newSupervisor(env)
	b.SetDeadline(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

func (b *bench) pass(now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

// drain drains slots. Slots are given up only when no process that had them is left.
func (b *bench) drain(set slot.Set) {
	b.Drain(set, func(n slot.Slot, _ []table.Gone) {
		if left := b.alive(n); left != 0 {
			b.t.Errorf("slot %d is given up, and process %d still has it", n, left)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.given.Add(n)
	})
}

// lines returns what the scripts noted.
func (b *bench) lines() []string {
	data, _ := os.ReadFile(b.file)
	return strings.Split(strings.TrimSpace(string(bytes.TrimSpace(data))), "\n")
}

// alive returns a process that has a slot and still runs, or 0.
func (b *bench) alive(n slot.Slot) int {
	for _, l := range b.lines() {
		if fields := strings.Fields(l); len(fields) == 3 && fields[0] == "begin" {
			set, err := slot.ParseSet(fields[1])
			pid, err2 := strconv.Atoi(fields[2])
			if err != nil || err2 != nil {
				b.t.Error(l, err, err2)
			}
			if set.Has(n) && syscall.Kill(pid, 0) == nil {
				return pid
			}
		}
	}
	return 0
}

// want waits until the scripts have noted lines that begin with these words, in this order, and no others.
func (b *bench) want(want ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("the scripts to note %q", want), func() bool {
		got := b.lines()
		if len(got) != len(want) {
			return false
		}
		for i := range got {
			if !strings.HasPrefix(got[i]+" ", want[i]+" ") {
				return false
			}
		}
		return true
	})
}

func (b *bench) until(what string, check func() bool) {
	b.t.Helper()
	for end := time.Now().Add(hang); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("waited for %s; they noted %q, given %v", what, b.lines(), b.given)
		}
	}
}

func (b *bench) gave(text string) {
	b.t.Helper()
	b.until("slots "+text+" to be given up", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.given == set(text)
	})
}

func set(text string) slot.Set {
	out, err := slot.ParseSet(text)
	if err != nil {
		panic(err)
	}
	return out
}

// Slots that come one after the other are in one start. A slot is given up when the process has exited, which is then
// started with the rest.
func TestSlotsComeAndGo(t *testing.T) {
	b := newBench(t, polite, nil)
	b.Open(set("0"), 1)
	b.Open(set("1-2"), 1)
	b.want("begin 0-2")
	b.drain(set("1"))
	b.gave("1")
	b.want("begin 0-2", "end 0-2", "begin 0,2")
	b.Open(set("5"), 2)
	b.want("begin 0-2", "end 0-2", "begin 0,2", "end 0,2", "begin 0,2,5")
}

func TestEachSlotHasAProcess(t *testing.T) {
	b := newBench(t, polite, func(env *supervisorEnv) { env.Separate = true })
	b.Open(set("0"), 1)
	b.want("begin 0")
	b.Open(set("1"), 1)
	b.want("begin 0", "begin 1")
	b.drain(set("0"))
	b.gave("0")
	b.want("begin 0", "begin 1", "end 0")
}

// A process keeps its slots for a while, unless the member leaves. Open cancels a drain.
func TestMinUptime(t *testing.T) {
	b := newBench(t, polite, func(env *supervisorEnv) { env.MinUptime = time.Hour })
	b.Open(set("0-1"), 1)
	b.want("begin 0-1")
	b.drain(set("0"))
	b.drain(set("1"))
	b.Open(set("1"), 1) // it stays after all
	for range 3 {
		b.look()
	}
	b.want("begin 0-1")
	if !b.given.Empty() {
		t.Error("given up:", b.given)
	}
	b.leave()
	b.gave("0")
	b.want("begin 0-1", "end 0-1") // a leaving member starts nothing
}

// A slot is given up when the whole group of its process has exited, which is not killed while there is time.
func TestDescendantsMayFinish(t *testing.T) {
	b := newBench(t, slow, nil)
	b.Open(set("0"), 1)
	b.want("begin 0")
	b.drain(set("0"))
	b.gave("0")
	b.want("begin 0", "end 0")
}

// The API server may still work on the last write of a process that was killed or crashed, so its slots wait.
func TestSlotsOfACrashedProcessWait(t *testing.T) {
	for name, crash := range map[string]func(*bench){
		"exit": func(b *bench) { b.until("its end", func() bool { return len(b.ended) > 0 }) },
		"kill": func(b *bench) { b.Shut(set("0")) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, `trap '' TERM; echo "begin $0 $$" >> "$1"; sleep 0.2; [ `+name+` = kill ] || exit 1
				while :; do sleep 0.02; done`, func(env *supervisorEnv) { env.FenceDelay = time.Hour })
			b.Open(set("0"), 1)
			b.want("begin 0")
			crash(b)
			b.until("the process to end", func() bool { return b.alive(0) == 0 })
			b.Open(set("0"), 2)
			b.drain(set("0"))
			for range 3 {
				b.look()
			}
			if !b.given.Empty() {
				t.Error("given up:", b.given)
			}
			b.want("begin 0") // nor is it started again
		})
	}
}

// A process that does not exit is killed with its descendants.
func TestStopTimeout(t *testing.T) {
	b := newBench(t, stubborn, func(env *supervisorEnv) { env.StopTimeout = 50 * time.Millisecond })
	b.Open(set("0"), 1)
	b.want("begin 0")
	b.drain(set("0"))
	b.gave("0")
}

// When the Lease is lost, processes are killed at once, and started again when the slots come back.
func TestLapse(t *testing.T) {
	b := newBench(t, stubborn, nil)
	b.Open(set("0"), 1)
	b.want("begin 0")
	b.pass(2 * time.Hour)
	b.until("the process to be killed", func() bool { return b.alive(0) == 0 })
	b.SetDeadline(3 * time.Hour)
	b.want("begin 0", "begin 0")
	b.Shut(set("0"))
	b.until("the process to be killed", func() bool { return b.alive(0) == 0 })
	b.Open(set("0"), 1)
	b.want("begin 0", "begin 0", "begin 0")
}

// The exit code of a command that exits by itself comes through, and it is not started again here.
func TestTheCommandExits(t *testing.T) {
	for script, want := range map[string]int{`echo begin >> "$1"; exit 3`: 3, `echo begin >> "$1"; kill -KILL $$`: 137} {
		b := newBench(t, script, nil)
		b.Open(set("0"), 1)
		select {
		case code := <-b.ended:
			if code != want {
				t.Errorf("code %d, want %d", code, want)
			}
		case <-time.After(hang):
			t.Fatal("its end is not noticed")
		}
		for range 3 {
			b.look()
		}
		b.want("begin")
	}
	b := newBench(t, "", func(env *supervisorEnv) {
		env.Line = func(slot.Set) (line, bool, error) { return line{args: []string{"/does/not/exist"}}, true, nil }
	})
	b.Open(set("0"), 1)
	if code := <-b.ended; code != 127 {
		t.Errorf("a command that does not exist: code %d", code)
	}
}

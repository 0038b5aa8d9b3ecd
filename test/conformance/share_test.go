package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rota-dev/rota/test/require"
)

// Programs with a client of `rota run` are checked against the protocol. The test takes the place of `rota run`.
//
// A program gets ROTA_SHARE, and JOURNAL as for dispatchers. OBJECTS is a directory with a file for each slot, of its
// number, with a name in each line. To load a slot the program waits until there is a file; then it appends "load SLOT"
// to the journal. When a slot is opened it appends "open SLOT", and works on each name, at the same time: it appends
// "begin NAME"; if the name begins with "wait", it waits until OBJECTS has a file of that name; it appends "end NAME".
// For deletions that were left to it, it does the same, unless the name begins with "later": these it leaves when it
// drains the slot. When a slot is dropped it appends "drop SLOT".

// patience is how long a program may take for what it does at once, on a machine that is busy.
const patience = time.Minute

// shareProgram is a program with a client of `rota run`.
type shareProgram struct{ command, env []string }

func shareChecks() map[string]func(*counter) {
	return map[string]func(*counter){
		"loads, opens, drains and drops":           sharesSlots,
		"loads slots side by side":                 loadsSideBySide,
		"answers a drain when its work has ended":  drainsWork,
		"goes on when a drain is cancelled":        cancelsDrain,
		"loads again when it is asked to":          loadsAgain,
		"hands deletions on":                       handsDeletionsOn,
		"ends at the deadline":                     endsAtDeadline,
		"goes on after the deadline without slots": outlivesDeadline,
		"takes messages in pieces":                 readsPieces,
		"ignores what it does not know":            ignoresUnknown,
		"ends when rota goes away":                 endsWithRota,
		"refuses another version":                  refusesVersion,
	}
}

// counter is where a program asks for its share.
type counter struct {
	*testing.T
	dir     string
	conn    net.Conn
	answers chan sharedAnswer
	cmd     *exec.Cmd
	exited  chan struct{}
	seq     int
}

type sharedAnswer struct {
	Type string              `json:"type"`
	Slot int                 `json:"slot"`
	Seq  int                 `json:"seq"`
	Gone []map[string]string `json:"gone"`
}

const sharedHello = `{"type":"hello","version":1,"rota":"r","namespace":"n","slots":4,"key":"Name","kinds":["ConfigMap"]}`

func checkShare(t *testing.T, p shareProgram) {
	t.Helper()
	for name, run := range shareChecks() {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			run(newCounter(t, p))
		})
	}
}

// newCounter starts a program, and waits until it has connected.
func newCounter(t *testing.T, p shareProgram) *counter {
	t.Helper()
	c := &counter{T: t, answers: make(chan sharedAnswer, 100), exited: make(chan struct{})}
	var err error
	c.dir, err = os.MkdirTemp("", "share") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	c.put("journal")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(c.dir, "socket"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	var output strings.Builder
	c.cmd = exec.CommandContext(context.Background(), p.command[0], p.command[1:]...) // it is what is tested
	c.cmd.Env = append(append(os.Environ(), p.env...), "ROTA_SHARE="+filepath.Join(c.dir, "socket"),
		"JOURNAL="+filepath.Join(c.dir, "journal"), "OBJECTS="+c.dir)
	c.cmd.Stdout, c.cmd.Stderr = &output, &output
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, c.cmd.Start())
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
		_ = listener.Close()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		<-c.exited
		if t.Failed() {
			t.Logf("journal: %q\noutput of the program:\n%s", c.journal(), output.String())
		}
	})
	c.conn, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.conn.Close() })
	go func() {
		for lines := bufio.NewScanner(c.conn); lines.Scan(); {
			var a sharedAnswer
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				t.Errorf("%s: %v", lines.Text(), err)
			}
			c.answers <- a
		}
	}()
	return c
}

// begins greets the program, and lets it work for an hour.
func (c *counter) begins() {
	c.sends(sharedHello)
	c.may(time.Hour)
}

// sends sends a line.
func (c *counter) sends(format string, args ...any) {
	c.Helper()
	if _, err := fmt.Fprintf(c.conn, format+"\n", args...); err != nil {
		c.Fatal(err)
	}
}

// may sends a deadline.
func (c *counter) may(work time.Duration) {
	var now unix.Timespec
	require.NoError(c, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	c.sends(`{"type":"deadline","monotonic":%f}`, (time.Duration(now.Nano()) + work).Seconds())
}

// asks sends a message that has an answer, and returns its seq.
func (c *counter) asks(what string, slot int, more ...string) int {
	c.seq++
	about := ""
	if what == "warm" || what == "load" {
		about = fmt.Sprintf(`,"selectors":{"ConfigMap":"slot in (%d)"},"hashes":["%d000000000000000","%dfffffffffffffff"]`,
			slot, 4*slot, 4*slot+3)
	}
	c.sends(`{"type":"%s","slot":%d,"seq":%d%s%s}`, what, slot, c.seq, about, strings.Join(more, ""))
	return c.seq
}

// opens has the program load and open a slot with these names.
func (c *counter) opens(slot int, names ...string) {
	c.Helper()
	c.put(fmt.Sprint(slot), names...)
	c.gets("loaded", c.asks("load", slot))
	c.sends(`{"type":"open","slot":%d,"epoch":5}`, slot)
}

// next waits for the next answer.
func (c *counter) next() sharedAnswer {
	c.Helper()
	select {
	case a := <-c.answers:
		return a
	case <-time.After(patience):
		c.Fatal("the program does not answer")
		panic("unreachable")
	}
}

// gets waits for an answer. Before it there may be answers to the questions in overtaken.
func (c *counter) gets(what string, seq int, overtaken ...int) sharedAnswer {
	c.Helper()
	for {
		a := c.next()
		if slices.Contains(overtaken, a.Seq) {
			continue
		}
		if a.Type != what || a.Seq != seq {
			c.Fatalf("the program answers %+v, want %s %d", a, what, seq)
		}
		return a
	}
}

// put writes a file with lines.
func (c *counter) put(name string, lines ...string) {
	c.Helper()
	path := filepath.Join(c.dir, name)
	text := strings.Join(append(lines, ""), "\n")
	require.NoError(c, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(c, os.Rename(path+".new", path))
}

func (c *counter) journal() []string {
	text, _ := os.ReadFile(filepath.Join(c.dir, "journal"))
	return strings.Split(string(text), "\n")
}

func (c *counter) has(line string) bool { return slices.Contains(c.journal(), line) }

// notes waits until the journal has lines.
func (c *counter) notes(lines ...string) {
	c.Helper()
	for end := time.Now().Add(patience); slices.ContainsFunc(lines, func(l string) bool { return !c.has(l) }); {
		if time.Now().After(end) {
			c.Fatalf("the journal is %q, want %q", c.journal(), lines)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// ends waits until the program has exited, with an error.
func (c *counter) ends() {
	c.Helper()
	select {
	case <-c.exited:
		if c.cmd.ProcessState.Success() {
			c.Error("the program exits with 0")
		}
	case <-time.After(patience):
		c.Fatal("the program goes on")
	}
}

func sharesSlots(c *counter) {
	c.begins()
	c.gets("warmed", c.asks("warm", 1))
	c.opens(1, "a", "b")
	c.notes("end a", "end b")
	c.gets("drained", c.asks("drain", 1))
	c.sends(`{"type":"shut","slot":1}`)
	c.notes("drop 1")
	c.opens(1, "c")
	c.notes("end c")
	if j := c.journal(); slices.Index(j, "load 1") > slices.Index(j, "open 1") ||
		slices.Index(j, "open 1") > slices.Index(j, "begin a") || slices.Index(j, "drop 1") > slices.Index(j, "begin c") {
		c.Errorf("journal %q", j)
	}
}

func loadsSideBySide(c *counter) {
	c.begins()
	first := c.asks("load", 1) // there is no file yet
	c.opens(2, "wait-a")
	c.notes("begin wait-a")
	c.opens(3, "b")
	c.notes("end b")
	drain := c.asks("drain", 2)
	c.gets("drained", c.asks("drain", 3)) // slot 2 is still at work
	c.put("1")
	c.gets("loaded", first)
	c.put("wait-a")
	c.gets("drained", drain)
}

func drainsWork(c *counter) {
	c.begins()
	c.opens(1, "wait-a", "wait-b", "c")
	c.notes("begin wait-a", "begin wait-b", "end c")
	drain := c.asks("drain", 1)
	c.put("wait-b")
	c.notes("end wait-b")
	c.put("wait-a")
	c.gets("drained", drain)
	if !c.has("end wait-a") {
		c.Error("it answers before its work has ended")
	}
}

func cancelsDrain(c *counter) {
	c.begins()
	c.opens(1, "wait-a", "wait-b")
	c.notes("begin wait-a", "begin wait-b")
	first := c.asks("drain", 1)
	c.sends(`{"type":"open","slot":1,"epoch":5}`)
	c.opens(2, "c") // messages come in order, so it has read the others
	c.notes("end c")
	c.put("wait-a")
	c.put("wait-b")
	c.notes("end wait-a", "end wait-b")
	c.gets("drained", c.asks("drain", 1)) // and has not answered the first
	c.sends(`{"type":"open","slot":1,"epoch":5}`)
	c.gets("drained", c.asks("drain", 1), first)
	c.opens(3, "wait-d")
	c.notes("begin wait-d")
	first = c.asks("drain", 3)
	c.sends(`{"type":"open","slot":3,"epoch":5}`)
	second := c.asks("drain", 3)
	c.put("wait-d")
	c.gets("drained", second, first)
}

func loadsAgain(c *counter) {
	c.begins()
	c.put("1", "a")
	c.gets("loaded", c.asks("load", 1))
	c.put("1", "b") // another member has worked
	c.gets("loaded", c.asks("load", 1))
	c.sends(`{"type":"open","slot":1,"epoch":5}`)
	c.notes("end b")
	if c.has("begin a") {
		c.Error("it works on what it knew before")
	}
}

func handsDeletionsOn(c *counter) {
	c.begins()
	c.put("1")
	gone := `,"gone":[{"kind":"ConfigMap","namespace":"n","name":"x"},{"kind":"ConfigMap","name":"later"}]`
	c.gets("loaded", c.asks("load", 1, gone))
	c.sends(`{"type":"open","slot":1,"epoch":5}`)
	c.notes("end x")
	a := c.gets("drained", c.asks("drain", 1))
	if len(a.Gone) != 1 || a.Gone[0]["kind"] != "ConfigMap" || a.Gone[0]["name"] != "later" || a.Gone[0]["namespace"] != "" {
		c.Errorf("it leaves %v", a.Gone)
	}
}

func endsAtDeadline(c *counter) {
	c.begins()
	c.opens(1, "wait-a")
	c.notes("begin wait-a")
	c.may(time.Second)
	c.ends()
}

func outlivesDeadline(c *counter) {
	c.begins()
	c.opens(1, "a")
	c.notes("end a")
	c.gets("drained", c.asks("drain", 1))
	c.may(-time.Second)
	time.Sleep(500 * time.Millisecond)
	c.may(time.Hour)
	c.opens(2, "b")
	c.notes("end b")
}

func readsPieces(c *counter) {
	c.begins()
	c.put("1", "ä")
	c.put("2", "b")
	text := `{"type":"load","slot":1,"seq":1,"hashes":["0","f"],"gone":[{"kind":"ConfigMap","name":"ö"}]}` + "\n" +
		`{"type":"load","slot":2,"seq":2,"hashes":["0","f"]}` + "\n"
	for i := range len(text) {
		if _, err := c.conn.Write([]byte{text[i]}); err != nil {
			c.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	got := []int{c.next().Seq, c.next().Seq}
	slices.Sort(got)
	if !slices.Equal(got, []int{1, 2}) {
		c.Errorf("answers to %v", got)
	}
	c.sends(`{"type":"open","slot":1,"epoch":5}` + "\n" + `{"type":"open","slot":2,"epoch":5}`)
	c.notes("end ä", "end ö", "end b")
}

func ignoresUnknown(c *counter) {
	c.begins()
	c.sends(`{"type":"someday","slot":1,"seq":1}`)
	c.seq++
	c.put("1", "a")
	c.gets("loaded", c.asks("load", 1, `,"someday":{"a":[1]}`))
	c.sends(`{"type":"open","slot":1,"epoch":5,"someday":true}`)
	c.notes("end a")
}

func endsWithRota(c *counter) {
	c.begins()
	c.opens(1, "wait-a")
	c.notes("begin wait-a")
	require.NoError(c, c.conn.Close())
	c.ends()
}

func refusesVersion(c *counter) {
	c.sends(strings.Replace(sharedHello, `"version":1`, `"version":2`, 1))
	c.ends()
}

func TestSharePython(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	checkShare(t, shareProgram{[]string{"python3", "testdata/share.py"},
		[]string{"PYTHONPATH=" + clients(t, "python"), "PYTHONDONTWRITEBYTECODE=1"}})
}

func TestShareNode(t *testing.T) {
	t.Parallel()
	needs(t, "node")
	checkShare(t, shareProgram{[]string{"node", "testdata/share.mjs"}, nil})
}

// TestShareProgram checks a program that the environment names; see clients/README.md.
func TestShareProgram(t *testing.T) {
	command := strings.Fields(os.Getenv("ROTA_CONFORMANCE_SHARE_PROGRAM"))
	if len(command) == 0 {
		t.Skip("ROTA_CONFORMANCE_SHARE_PROGRAM names none")
	}
	checkShare(t, shareProgram{command: command})
}

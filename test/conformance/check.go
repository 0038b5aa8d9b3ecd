package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// checks are what a client has to do.
var checks = []struct {
	name string
	run  func(*lab, Program)
}{
	{"takes keys, and says that they are done", takesAndDone},
	{"works on several keys at the same time", concurrently},
	{"says that work failed", retries},
	{"says when a key should come again", comesAgain},
	{"extends the takes of long work", extends},
	{"stops when a take has ended", stopsWhenEnded},
	{"stops when a take expires while connections break", stopsWhenExpired(Fault{})},
	{"stops when a take expires while no dispatcher answers", stopsWhenExpired(Fault{Silent: true})},
	{"waits as long as a poll's 503 says", waitsBeforeTake},
	{"waits as long as a done's 429 says", waitsBeforeDone},
	{"goes on when a dispatcher has restarted", reconnects},
	{"ignores fields that it does not know", ignoresExtra},
	{"hands over deletions", deletions},
	{"reads a new token", rotates},
	{"keeps tokens off command lines", keepsSecret},
	{"waits for keys without asking all the time", pollsLong},
	{"stops soon while there is nothing to do", stopsIdle},
	{"leaves no key taken when it stops", stopsBusy},
	{"leaves no key taken when it stops while keys come quickly", stopsInFlight},
	{"cuts work short that takes too long when it stops", cutsShort},
	{"never works on one key twice at the same time", neverTwice},
}

// Check holds a program against the protocol. Each check is a subtest with a program of its own.
func Check(t *testing.T, p Program) {
	t.Helper()
	if p.AtOnce == 0 {
		p.AtOnce = 8
	}
	if p.Length == 0 {
		p.Length = 4 * time.Second
	}
	slots := make(chan struct{}, p.AtOnce)
	for _, c := range checks {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			slots <- struct{}{}
			defer func() { <-slots }()
			check(t, p, c.run)
		})
	}
}

// exclusive says whether any key was worked on twice at the same time.
func (l *lab) exclusive(kills bool) {
	busy := map[string]bool{}
	for _, line := range l.journal() {
		words := strings.Fields(line)
		switch {
		case words[0] == "begin" && busy[words[1]] && !(kills && strings.HasPrefix(words[1], "stuck-")):
			l.Errorf("%s was begun while it was worked on", words[1])
		case words[0] == "begin":
			busy[words[1]] = true
		default:
			busy[words[1]] = false
		}
	}
}

// wellFormed says whether a dispatcher would have taken all requests.
func (l *lab) wellFormed() {
	for _, r := range l.tier.Requests() {
		switch r.Status {
		case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType,
			http.StatusRequestEntityTooLarge:
			l.Errorf("a dispatcher refuses with %d: %s %s", r.Status, r.Path, r.Body)
		}
	}
}

func (l *lab) change(n int, format string) {
	for i := range n {
		l.tier.Change(fmt.Sprintf(format, i), false)
	}
}

// slow has a key handed out that takes so long.
func (l *lab) slow(takes time.Duration, name string) {
	l.tier.Change(fmt.Sprintf("slow-%d-%s", int(takes.Seconds()), name), false)
}

func takesAndDone(l *lab, p Program) {
	l.change(3, "ok-%d")
	l.run(p)
	l.await(soon, "end", 3)
	l.change(3, "ok-again-%d")
	l.await(soon, "end", 6)
	l.idle(soon)
	if _, counts := l.tier.Stats(); counts.Done != 6 || counts.Taken != 6 || counts.Expired+counts.Retried > 0 {
		l.Errorf("6 keys were taken and done: %+v", counts)
	}
	for i := range 3 {
		if l.count(fmt.Sprintf("begin ok-%d 1 false", i)) != 1 {
			l.Errorf("ok-%d was not worked on once, as attempt 1, not gone", i)
		}
	}
}

func concurrently(l *lab, p Program) {
	if p.Concurrency < 3 {
		l.Skip("the program works on one key at a time")
	}
	l.change(3, "slow-1-%d")
	l.run(p)
	l.await(soon, "begin", 3)
	if n := l.count("end"); n > 0 {
		l.Errorf("%d of 3 keys had ended before the last was begun", n)
	}
	l.change(p.Concurrency, "slow-1-more-%d")
	l.await(soon, "end", 3+p.Concurrency)
	l.idle(soon)
}

func retries(l *lab, p Program) {
	l.tier.Change("fail-2-a", false)
	l.run(p)
	l.await(soon, "end fail-2-a", 3)
	l.idle(soon)
	for attempt := 1; attempt <= 3; attempt++ {
		if l.count(fmt.Sprintf("begin fail-2-a %d", attempt)) != 1 {
			l.Errorf("attempt %d was not made once", attempt)
		}
	}
	if _, counts := l.tier.Stats(); counts.Retried != 2 || counts.Done != 1 || counts.Expired > 0 {
		l.Errorf("2 failures and a success: %+v", counts)
	}
}

func comesAgain(l *lab, p Program) {
	l.tier.Change("after-2-a", false)
	l.run(p)
	first := l.await(soon, "end after-2-a", 1)
	second := l.await(soon, "begin after-2-a", 2)
	if took := second.Sub(first); took < 2*time.Second-l.slack {
		l.Errorf("the key came again after %v, not 2 s", took)
	}
	l.await(soon, "end after-2-a", 2)
	if _, counts := l.tier.Stats(); counts.Retried+counts.Expired > 0 {
		l.Errorf("successes: %+v", counts)
	}
}

// extends works for longer than two takes last.
func extends(l *lab, p Program) {
	l.slow(9*l.length/4, "a")
	l.run(p)
	l.await(9*l.length/4+soon, "end", 1)
	l.idle(soon)
	if _, counts := l.tier.Stats(); counts.Taken != 1 || counts.Done != 1 {
		l.Errorf("one take, done: %+v", counts)
	}
	if n := len(l.tier.Requests(wire.PathExtend)); n < 2 || n > 30 {
		l.Errorf("the take of %v was extended %d times in %v", l.length, n, 9*l.length/4)
	}
}

func stopsWhenEnded(l *lab, p Program) {
	long := 2 * l.length // so that it is no expiry that stops the work
	l.tier.Close()
	l.tier.Length = long
	if err := l.tier.Start(); err != nil {
		l.Fatal(err)
	}
	l.tier.Change("slow-30-a", false)
	l.run(p)
	l.await(soon, "begin slow-30-a", 1)
	l.tier.Forget("slow-30-a")
	l.await(long/3+2*l.slack, "stopped slow-30-a", 1)
	l.change(1, "ok-%d")
	l.await(soon, "end ok-0", 1)
	for _, r := range l.tier.Requests(wire.PathDone, wire.PathRelease) {
		if r.Status == http.StatusGone {
			l.Errorf("the program ended a take that had ended: %s", r.Body)
		}
	}
}

// stopsWhenExpired has no request answered. The take lasts from the last one that was.
func stopsWhenExpired(f Fault) func(*lab, Program) {
	return func(l *lab, p Program) { l.expires(p, f) }
}

func (l *lab) expires(p Program, f Fault) {
	l.tier.Change("slow-30-a", false)
	l.run(p)
	l.await(soon, "begin slow-30-a", 1)
	l.until(soon, "extension", func() bool { return len(l.tier.Requests(wire.PathExtend)) > 0 })
	l.tier.SetFault(&f)
	l.until(soon, "request that is not answered", func() bool {
		all := l.tier.Requests(wire.PathExtend)
		return all[len(all)-1].Status == 0
	})
	answered := time.Time{}
	for _, r := range l.tier.Requests(wire.PathExtend) {
		if r.Status == http.StatusOK {
			answered = r.At
		}
	}
	at := l.await(l.length+l.slack, "stopped slow-30-a", 1)
	if late := at.Sub(answered) - l.length; late > l.slack || late < -l.slack {
		l.Errorf("the program stopped %v after the take of %v", late, l.length)
	}
	l.tier.SetFault(nil)
	l.await(2*soon, "begin slow-30-a 2", 1)
}

// waits has a request refused, and says whether it was sent again too early.
func (l *lab) waits(p Program, f Fault) {
	f.Times = 1
	l.tier.SetFault(&f)
	l.tier.Change("ok-a", false)
	l.run(p)
	l.await(soon, "end ok-a", 1)
	l.idle(soon)
	sent := l.tier.Requests(f.Paths...)
	if len(sent) < 2 || sent[0].Status != f.Status {
		l.Fatalf("the first of %d requests should have been refused", len(sent))
	}
	if took := sent[1].At.Sub(sent[0].At); took < time.Duration(f.RetryAfter)*time.Second {
		l.Errorf("asked to wait for %d s, the program waited for %v", f.RetryAfter, took)
	}
	if _, counts := l.tier.Stats(); counts.Taken != 1 || counts.Done != 1 {
		l.Errorf("one take, done: %+v", counts)
	}
}

func waitsBeforeTake(l *lab, p Program) {
	l.waits(p, Fault{
		Paths: []string{wire.PathTake, wire.PathStream}, Status: http.StatusServiceUnavailable, RetryAfter: 2,
	})
}

func waitsBeforeDone(l *lab, p Program) {
	l.waits(p, Fault{Paths: []string{wire.PathDone}, Status: http.StatusTooManyRequests, RetryAfter: 1})
}

func reconnects(l *lab, p Program) {
	l.change(1, "ok-%d")
	l.run(p)
	l.await(soon, "end ok-0", 1)
	l.tier.Close()
	time.Sleep(time.Second) // connections are refused
	if err := l.tier.Start(); err != nil {
		l.Fatal(err)
	}
	l.change(1, "ok-again-%d")
	l.await(2*soon, "end ok-again-0", 1)
	l.idle(soon)
}

func ignoresExtra(l *lab, p Program) {
	l.tier.Extra = true
	l.change(2, "ok-%d")
	l.slow(5*l.length/4, "a")
	l.run(p)
	l.await(2*soon, "end", 3)
	l.idle(soon)
	if _, counts := l.tier.Stats(); counts.Taken != 3 || counts.Done != 3 {
		l.Errorf("3 takes, done: %+v", counts)
	}
}

func deletions(l *lab, p Program) {
	l.tier.Change("ok-a", true)
	l.run(p)
	l.await(soon, "begin ok-a 1 true", 1)
	l.idle(soon)
}

func rotates(l *lab, p Program) {
	l.change(1, "ok-%d")
	l.run(p)
	l.await(soon, "end ok-0", 1)
	l.tier.SetTokens(secondToken)
	l.tier.Change("ok-while-refused", false) // a poll that waits was let in
	time.Sleep(time.Second)
	l.write("token", []byte(secondToken))
	l.change(1, "ok-again-%d")
	l.await(8*time.Second, "end ok-again-0", 1) // tokens are not only read when they are old
	l.idle(2 * soon)
}

func keepsSecret(l *lab, p Program) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		l.Skip("there is no /proc")
	}
	l.change(5, "ok-%d")
	l.slow(3*l.length/4, "a")
	l.run(p)
	l.until(2*soon, "end of all", func() bool {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			l.Fatal(err)
		}
		for _, name := range lines {
			line, err := os.ReadFile(name)
			for _, secret := range append(l.tier.shown(), firstToken) {
				if err == nil && bytes.Contains(line, []byte(secret)) {
					l.Fatalf("a token is in a command line: %q", line)
				}
			}
		}
		return l.count("end") >= 6
	})
}

func pollsLong(l *lab, p Program) {
	l.run(p)
	l.until(soon, "request", func() bool { return len(l.tier.Requests()) > 0 })
	time.Sleep(3 * time.Second)
	sent := l.tier.Requests(wire.PathTake, wire.PathStream)
	if len(sent) > 3 {
		l.Errorf("%d requests in 3 s without a key", len(sent))
	}
	var take wire.TakeRequest
	if err := json.Unmarshal([]byte(sent[0].Body), &take); err != nil {
		l.Fatal(err)
	}
	if take.Worker == "" || len(take.Kinds) != 1 || take.Kinds[0] != Kind {
		l.Errorf("request %s: want a worker and the kind %s", sent[0].Body, Kind)
	}
}

func stopsIdle(l *lab, p Program) {
	l.change(1, "ok-%d")
	l.run(p)
	l.await(soon, "end ok-0", 1)
	l.idle(soon)
	l.stop(soon)
}

func stopsBusy(l *lab, p Program) {
	l.change(max(2*p.Concurrency, 2), "slow-2-%d")
	l.run(p)
	l.await(soon, "begin", 1)
	l.stop(3 * soon)
	if stats, counts := l.tier.Stats(); stats.Taken > 0 || counts.Expired > 0 {
		l.Errorf("keys are taken, or have expired: %+v, %+v", stats, counts)
	}
}

// stopsInFlight stops the program while it sends requests without a pause: an answer with keys may be on its way.
func stopsInFlight(l *lab, p Program) {
	l.change(3000, "ok-%d")
	for range 5 {
		l.run(p)
		l.await(soon, "end", l.count("end")+3)
		l.stop(soon)
		if stats, _ := l.tier.Stats(); stats.Taken > 0 {
			l.Errorf("keys are taken: %+v", stats)
		}
	}
	if _, counts := l.tier.Stats(); counts.Done == 3000 {
		l.Error("there was nothing left to do: this checks nothing")
	}
}

func cutsShort(l *lab, p Program) {
	l.tier.Change("slow-60-a", false)
	l.run(p, "2")
	l.await(soon, "begin", 1)
	begun := time.Now()
	l.stop(2 * soon)
	if took := time.Since(begun); took < 2*time.Second-l.slack {
		l.Errorf("the program stopped after %v, with a grace of 2 s", took)
	}
	if l.count("stopped slow-60-a") != 1 {
		l.Error("the work was not told to stop")
	}
	stats, counts := l.tier.Stats()
	if stats.Taken > 0 || stats.Ready != 1 || counts.Expired+counts.Retried+counts.Done > 0 {
		l.Errorf("the key was not released: %+v, %+v", stats, counts)
	}
}

// neverTwice hands out a key again while the first handler does not hear that its take has ended.
func neverTwice(l *lab, p Program) {
	name := fmt.Sprintf("stuck-%d-a", int((5 * l.length / 4).Seconds()))
	l.tier.Change(name, false)
	l.run(p)
	l.await(soon, "begin "+name, 1)
	l.tier.Forget(name)
	l.tier.Change(name, false)
	want := 2
	if p.Kills { // the first did not end
		want = 1
	}
	l.await(3*soon, "end "+name, want)
}

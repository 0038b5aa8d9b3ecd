package election

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/test/require"
)

// talk is a conversation with a Candidate. Each line is a time in seconds and what happens then:
//
//	join, quit, freeze, thaw
//	get VERSION HOLDER DURATION RENEWED   it asks what the Lease says, and gets this answer; "get -": there is none
//	lost                                  it asks, and gets no answer
//	heard VERSION HOLDER                  a watch says so; "heard VERSION -": that there is none since that version
//	put VERSION RENEWED [DURATION]        it writes, on condition of the version before, and the Lease has this version then
//	                                      and this duration (15)
//	put conflict                          it writes, and somebody else was faster
//	put lost                              it writes, and gets no answer
//	quiet                                 it wants nothing
//	until SECONDS                         until then it may work
//	release VERSION, release no           it releases the Lease if it has that version
//
// The answer to a get or a put comes a tenth of a second later.
func talk(t *testing.T, lines string) {
	t.Helper()
	c := New(Config{Holder: "rota", Lease: 15 * time.Second, Deadline: 10 * time.Second, Retry: 2 * time.Second,
		Fence: 2 * time.Second})
	var r Record // as the last answer had it
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		at, err := time.ParseDuration(f[0])
		require.NoError(t, err)
		now := member.Time{Mono: at, Wall: 1000 + int64(at/time.Second)}
		later := member.Time{Mono: at + time.Second/10, Wall: now.Wall}
		next := func(want ...Verb) (Request, bool) {
			req, ok := c.Next(now)
			if !ok || req.Verb != want[0] && req.Verb != want[len(want)-1] {
				t.Errorf("%s: it wants %v (%t)", line, req, ok)
				return req, false
			}
			return req, true
		}
		switch f[1] {
		case "join":
			c.Join(now)
		case "quit":
			c.Quit()
		case "freeze":
			c.Freeze()
		case "thaw":
			c.Thaw()
		case "quiet":
			if req, ok := c.Next(now); ok {
				t.Errorf("%s: it wants %v", line, req)
			}
		case "get":
			req, ok := next(Get)
			if !ok {
				return
			}
			before := r
			r = Record{}
			if f[2] != "-" {
				var lasts int
				if _, err := fmt.Sscan(strings.Join(f[2:], " "), &r.Version, &r.Holder, &lasts, &r.Renewed); err != nil {
					t.Fatal(line, err)
				}
				r.Holder, r.Duration = strings.Trim(r.Holder, `"`), time.Duration(lasts)*time.Second
				if r.Holder == before.Holder {
					r.Acquired, r.Transitions = before.Acquired, before.Transitions
				}
			}
			c.Answer(later, req, at, member.OutcomeDone, r)
		case "heard":
			heard := Record{Version: f[2], Holder: strings.Trim(f[3], `"`), Duration: 15 * time.Second, Renewed: 999}
			if f[3] == "-" {
				heard = Record{}
			}
			c.Heard(now, f[2], heard)
		case "lost":
			if req, ok := next(Get); ok {
				c.Answer(later, req, at, member.OutcomeUnknown, Record{})
			}
		case "put":
			req, ok := next(Put, Create)
			if !ok {
				return
			}
			lasts := 15 * time.Second
			if len(f) > 4 {
				lasts, _ = time.ParseDuration(f[4] + "s")
			}
			if req.Record.Version != r.Version || req.Record.Holder != "rota" || req.Record.Duration != lasts {
				t.Errorf("%s: it writes %+v over %+v", line, req.Record, r)
			}
			if req.Record.content() == r.content() {
				t.Errorf("%s: it writes what the Lease says already, so that stock replicas notice nothing", line)
			}
			switch f[2] {
			case "conflict":
				c.Answer(later, req, at, member.OutcomeConflict, Record{})
				continue
			case "lost":
				c.Answer(later, req, at, member.OutcomeUnknown, Record{})
				continue
			}
			r = req.Record
			if got := fmt.Sprint(r.Renewed); got != f[3] {
				t.Errorf("%s: renewed at %s", line, got)
			}
			r.Version = f[2]
			c.Answer(later, req, at, member.OutcomeDone, r)
		case "until":
			if got := fmt.Sprint(c.Until().Seconds()); got != f[2] {
				t.Errorf("%s: it may work until %s", line, got)
			}
		case "release":
			req, ok := c.Release(now)
			if got := req.Record; ok != (f[2] != "no") || ok && (got.Version != f[2] || got.Holder != "" || got.content() == r.content()) {
				t.Errorf("%s: it releases %t with %+v", line, ok, got)
			}
		default:
			t.Fatal(line)
		}
	}
}

func TestCandidate(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string]string{
		"a Lease that is missing may have been deleted under a leader that works: it is taken after a lease": `
			0s join
			0s get -
			0.1s quiet
			2.6s get -
			7.5s get -
			12.4s get -
			16.9s get -
			17s quiet
			19.5s get -
			19.6s put v1 1019
			19.7s until 29.6
			19.8s quiet`,
		"nor does a short absence count": `
			0s join
			0s get v1 stock 15 990
			2.6s get -
			5.2s get v3 stock 15 995
			7.8s get -
			12s get -
			16s get -
			20s get -
			24s get -
			24.1s quiet
			26.6s get -
			26.7s put v4 1026`,
		"it may have been there between looks that are far apart": `
			0s join
			0s get -
			6s get -
			12.1s get -
			17s get -
			22s get -
			27s get -
			27.1s quiet
			29.6s get -
			29.7s put v1 1029`,
		"or have been the rota's, as is heard": `
			0s join
			0s get -
			5s get -
			10s get -
			11s heard v2 rota
			12s heard v3 -
			15s get -
			20s get -
			25s get -
			25.1s quiet
			29.1s get -
			29.2s put v4 1029`,
		"one that was released is taken at once": `
			0s join
			0s get v1 "" 1 990
			0.1s put v2 1000
			0.2s until 10.1`,
		"the rota waits as long as another one's Lease lasts, and for its last write": `
			0s join
			0s get v1 stock 20 990
			2.6s get v1 stock 20 990
			21.9s get v1 stock 20 990
			22s quiet
			24.7s get v1 stock 20 990
			24.8s put v2 1024
			24.9s until 34.8`,
		"a renewal, and a change of the holder, start the wait again": `
			0s join
			0s get v1 stock 15 990
			16s get v2 stock 15 991
			18.6s get v2 stock 15 991
			18.7s quiet
			32s get v3 other 15 991
			34.6s get v3 other 15 991
			34.7s quiet
			50s get v3 other 15 991
			50.1s put v4 1050`,
		"an edit of its labels does not": `
			0s join
			0s get v1 stock 15 990
			16s get v2 stock 15 990
			18.6s get v3 stock 15 990
			18.7s put v4 1018`,
		"a Lease that does not say how long it lasts lasts as long as the rota's": `
			0s join
			0s get v1 stock 0 990
			16s get v1 stock 0 990
			16.1s quiet
			18.6s get v1 stock 0 990
			18.7s put v2 1018`,
		"somebody else was faster": `
			0s join
			0s get v1 "" 1 990
			0.1s put conflict
			0.2s until 0
			1s get v2 stock 15 1000
			1.1s quiet`,
		"a member renews if nobody else has": `
			0s join
			0s get v1 rota 15 990
			0.1s until 0
			0.1s put v2 1000
			0.2s until 10.1
			2.8s get v2 rota 15 1000
			2.9s put v3 1002
			3s until 12.9`,
		"a renewal by another member counts from the look before": `
			0s join
			0s get v1 rota 15 990
			0.1s put conflict
			0.2s until 0
			1s get v2 rota 15 991
			1.1s until 10
			1.1s quiet
			3.6s get v3 rota 15 992
			3.7s until 11
			6.2s get v3 rota 15 992
			6.3s put v4 1006
			6.4s until 16.3`,
		"an edit of its labels is no renewal": `
			0s join
			0s get v1 rota 15 990
			0.1s put v2 1000
			2.7s get v3 rota 15 1000
			2.8s until 10.1
			2.8s put v4 1002
			2.9s until 12.8`,
		"what stock replicas read changes with each renewal, whatever the clocks say": `
			0s join
			0s get v1 rota 15 5000
			0.1s put v2 5001
			2.7s get v2 rota 15 5001
			2.8s put v3 5002`,
		"a renewal that is shorter than one's own lease does not count, and is made longer": `
			0s join
			0s get v1 rota 15 990
			0.1s put v2 1000
			0.2s until 10.1
			2.8s get v3 rota 12 1001
			2.9s until 10.1
			2.9s put v4 1002
			3s until 12.9`,
		"one that is longer is kept, since who wrote it counts on it": `
			0s join
			0s get v1 rota 60 990
			0.1s put v2 1000 60
			0.2s until 10.1
			2.8s get v3 rota 60 1001
			2.9s until 10.1
			2.9s quiet
			5.4s get v4 stock 60 1003
			68s get v4 stock 60 1003
			68.1s put v5 1068 15`,
		"a write without an answer is no renewal until it is seen": `
			0s join
			0s get v1 rota 15 990
			0.1s put v2 1000
			3s get v2 rota 15 1000
			3.1s put lost
			3.2s until 10.1
			5s lost
			5.1s until 10.1
			7s get v3 rota 15 1003
			7.1s until 13
			7.1s quiet`,
		"who sees that another one has the Lease stops": `
			0s join
			0s get v0 "" 1 990
			0.1s put v1 1000
			2.7s get v2 stock 15 1002
			2.8s until 0`,
		"who hears that another one has the Lease stops at once, and looks as ever": `
			0s join
			0s get v0 "" 1 990
			0.1s put v1 1000
			0.2s until 10.1
			1s heard v2 stock
			1s until 0
			1s quiet
			2.7s get v2 stock 15 999
			2.8s until 0`,
		"also if it is cleared, or deleted, or both": `
			0s join
			0s get v0 "" 1 990
			0.1s put v1 1000
			1s heard v2 ""
			1s until 0
			2.7s get v2 "" 1 999
			2.8s put v3 1002
			2.9s until 12.8
			4s heard v4 ""
			4s until 0
			4.1s heard v5 -
			5.5s get -
			5.6s quiet
			10s get -
			14s get -
			18s get -
			21.5s get -
			21.6s put v6 1021
			21.7s until 31.6`,
		"what is older than what it saw does not count": `
			0s join
			0s get v1 "" 1 990
			0.1s put v3 1000
			0.2s until 10.1
			1s heard v1 ""
			1s heard v2 -
			1s heard v3 stock
			1s until 10.1`,
		"hearing of the rota's renewals gives no right": `
			0s join
			0s get v1 stock 15 990
			1s heard v2 rota
			1s until 0
			2.6s get v2 rota 15 999
			2.7s until 10`,
		"a renewal after another one's turn counts from the look before that turn": `
			0s join
			0s get v0 "" 1 990
			0.1s put v1 1000
			2.7s get v2 rota 15 1001
			2.8s until 10.1
			4s heard v3 stock
			4s until 0
			5.3s get v4 rota 15 1004
			5.4s until 12.7`,
		"before the first look, what it hears counts as little as what it saw before it joined": `
			0s join
			0s heard v1 stock
			0s get v2 rota 15 991
			0.1s until 0
			0.1s put v3 1000`,
		"a member that is not in the table any more stops": `
			0s join
			0s get v0 "" 1 990
			0.1s put v1 1000
			1s quit
			1s until 0
			9s get v2 rota 15 1001
			9.1s until 0
			9.1s quiet`,
		"it waits for a Lease that is missing while it waits for the table": `
			0s get -
			5s get -
			10s get -
			15s get -
			15.5s join
			15.5s get -
			15.6s quiet
			18.1s get -
			18.2s put v1 1018
			18.3s until 28.2`,
		"and for one that has not been renewed": `
			0s get v1 stock 15 990
			9s get v1 stock 15 990
			18s get v1 stock 15 990
			18.1s quiet
			18.5s join
			18.5s get v1 stock 15 990
			18.6s put v2 1018`,
		"but a renewal since a look before it joined does not count": `
			0s get v1 stock 15 990
			1s join
			1s get v2 rota 15 1001
			1.1s until 0
			1.1s put v3 1002`,
		"nor one since that look that it hears of": `
			0s get v1 stock 15 990
			1s join
			1s heard v2 -
			1s get v3 rota 15 1001
			1.1s until 0
			1.1s put v4 1002`,
		"what it saw before it was in the table does not count": `
			0s join
			0s get v1 rota 15 990
			0.1s put v2 1000
			1s quit
			2s join
			2s get v3 rota 15 1001
			2.1s until 0
			2.1s put v4 1002`,
		"the last one releases it": `
			0s join
			0s get v0 "" 1 990
			0.1s put v1 1000
			1s release no
			1s freeze
			9s quiet
			9s quit
			9s release v1`,
		"what it saw before it froze is no wait": `
			100s join
			100s get v1 stock 15 990
			101s freeze
			101s quit
			102s join
			102s get v1 stock 15 990
			102.1s quiet`,
		"nor if the change of the table failed meanwhile": `
			100s join
			100s get v1 stock 15 990
			101s freeze
			101s quit
			101s thaw
			102s join
			102s get v1 stock 15 990
			102.1s quiet`,
		"a member that leaves while it waits releases nothing": `
			0s join
			0s get v1 stock 15 990
			1s freeze
			1s quit
			1s release no`,
		"the change of the table failed": `
			0s join
			0s get v0 "" 1 990
			0.1s put v1 1000
			1s freeze
			1s thaw
			3s release no
			3s get v1 rota 15 1000
			3.1s put v2 1003`,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); talk(t, lines) })
	}
}

// Answers to requests that were under way when the last member froze tell of renewals by members that came later. It
// must not release the Lease over those. Answers from before Join tell nothing at all.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	c := New(Config{Holder: "rota", Lease: 15 * time.Second, Deadline: 10 * time.Second, Retry: 2 * time.Second})
	at := func(d time.Duration) member.Time { return member.Time{Mono: d, Wall: 1000} }
	ours := func(version string, renewed int64) Record {
		return Record{Version: version, Holder: "rota", Duration: 15 * time.Second, Renewed: renewed}
	}
	c.Join(at(0))
	first, _ := c.Next(at(0))
	c.Quit()
	c.Join(at(1))
	c.Answer(at(2), first, 0, member.OutcomeDone, ours("v1", 1))
	if _, known := c.Seen(); known {
		t.Error("it believes an answer from before it joined")
	}
	req, ok := c.Next(at(2))
	if !ok {
		t.Fatal("it asks nothing")
	}
	c.Answer(at(2), req, 2, member.OutcomeDone, ours("v1", 1))
	put, _ := c.Next(at(2))
	c.Answer(at(2), put, 2, member.OutcomeDone, ours("v2", 2))
	look, ok := c.Next(at(5 * time.Second))
	if !ok {
		t.Fatal("it asks nothing")
	}
	c.Freeze()
	c.Answer(at(5*time.Second), look, 5*time.Second, member.OutcomeDone, ours("v3", 3))
	c.Quit()
	if r, ok := c.Release(at(5 * time.Second)); !ok || r.Record.Version != "v2" {
		t.Errorf("it releases %+v, want the Lease as it was before: v2", r)
	}
}

// What was heard while a request was under way makes an answer from before it worthless. A later request is a consistent
// read, so its answer counts whatever was heard, even if versions went back, as after a restore of etcd.
func TestHeardDuringARequest(t *testing.T) {
	t.Parallel()
	c := New(Config{Holder: "rota", Lease: 15 * time.Second, Deadline: 10 * time.Second, Retry: 2 * time.Second})
	at := func(d time.Duration) member.Time { return member.Time{Mono: d, Wall: 1000 + int64(d/time.Second)} }
	ask := func(d time.Duration, verb Verb) Request {
		t.Helper()
		req, ok := c.Next(at(d))
		if !ok || req.Verb != verb {
			t.Fatalf("at %v it wants %v (%t), want %v", d, req, ok, verb)
		}
		return req
	}
	answer := func(d time.Duration, req Request, r Record, version string) Record {
		r.Version = version
		c.Answer(at(d), req, d, member.OutcomeDone, r)
		return r
	}
	is := func(what string, want time.Duration) {
		t.Helper()
		if c.Until() != want {
			t.Errorf("%s: it may work until %v, want %v", what, c.Until(), want)
		}
	}
	c.Join(at(0))
	ours := Record{Holder: "rota", Duration: 15 * time.Second, Renewed: 1}
	answer(0, ask(0, Get), ours, "10")
	put := ask(0, Put)
	c.Heard(at(0), "12", Record{Holder: "stock", Version: "12"})
	answer(time.Second, put, put.Record, "11")
	is("a write that another one has overwritten", 0)
	turns := c.Turns()
	get := ask(2*time.Second, Get)
	answer(2*time.Second, get, Record{Holder: "stock"}, "12")
	get = ask(5*time.Second, Get)
	c.Heard(at(5*time.Second), "14", Record{Version: "14"})
	answer(5*time.Second, get, ours, "13")
	is("a look from before the Lease was cleared", 0)
	get = ask(6*time.Second, Get)
	c.Heard(at(6*time.Second), "14", Record{Version: "14"})
	ours.Renewed = 3
	answer(6*time.Second, get, ours, "15")
	is("a look from after it, although it heard of that only now", 12*time.Second)
	if c.Turns() != turns {
		t.Errorf("%d turns of others, want the %d that it was", c.Turns(), turns)
	}
	c.Heard(at(7*time.Second), "99", Record{Holder: "stock", Version: "99"})
	is("it was heard", 0)
	ours.Renewed = 5
	answer(9*time.Second, ask(9*time.Second, Get), ours, "20")
	is("versions went back", 16*time.Second)
}

// Another one's turn between two looks shows in what the Lease says: who takes it changes when it was acquired.
func TestTurnsBetweenLooks(t *testing.T) {
	t.Parallel()
	c := New(Config{Holder: "rota", Lease: 15 * time.Second, Deadline: 10 * time.Second, Retry: 2 * time.Second})
	see := func(at time.Duration, r Record) {
		t.Helper()
		req, ok := c.Next(member.Time{Mono: at})
		if !ok || req.Verb != Get {
			t.Fatalf("at %v it wants %v (%t)", at, req, ok)
		}
		r.Holder, r.Duration = "rota", 15*time.Second
		c.Answer(member.Time{Mono: at}, req, at, member.OutcomeDone, r)
	}
	c.Join(member.Time{})
	see(0, Record{Version: "1", Renewed: 1, Acquired: 1, Transitions: 3})
	c.write, c.next = nil, 3*time.Second
	see(3*time.Second, Record{Version: "2", Renewed: 2, Acquired: 1, Transitions: 3})
	if c.Turns() != 0 || c.Turned() != 0 {
		t.Errorf("after a renewal %d turns, turned at %v", c.Turns(), c.Turned())
	}
	see(6*time.Second, Record{Version: "5", Renewed: 5, Acquired: 5, Transitions: 5})
	if c.Turns() != 1 || c.Turned() != 6*time.Second {
		t.Errorf("after another one's turn %d turns, turned at %v", c.Turns(), c.Turned())
	}
}

// The rota is new to the Lease when it was another's before: what that one wrote last must be waited for.
func TestTurned(t *testing.T) {
	t.Parallel()
	c := New(Config{Holder: "rota", Lease: 15 * time.Second, Deadline: 10 * time.Second, Retry: 2 * time.Second})
	see := func(at time.Duration, r Record) {
		now := member.Time{Mono: at, Wall: int64(at)}
		req, ok := c.Next(now)
		if !ok {
			t.Fatalf("at %v: it asks nothing", at)
		}
		if req.Verb != Get {
			r = req.Record
		}
		c.Answer(now, req, at, member.OutcomeDone, r)
	}
	c.Join(member.Time{})
	see(0, Record{Version: "v1", Holder: "rota", Duration: 15 * time.Second, Renewed: 1})
	see(0, Record{})
	if c.Turned() != 0 {
		t.Error("it was the rota's from the first")
	}
	see(5*time.Second, Record{Version: "v3", Holder: "stock", Renewed: 2})
	see(10*time.Second, Record{Version: "v4", Holder: "rota", Duration: 15 * time.Second, Renewed: 3})
	if c.Turned() != 10*time.Second || c.Until() != 15*time.Second {
		t.Errorf("turned at %v, until %v", c.Turned(), c.Until())
	}
}

package workers

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// errBoth refuses a request about several takes that also has the fields of a request about one.
var errBoth = problem(wire.ProblemInvalid, "takes: send them alone, or the fields of one take without takes")

// each defines how a request about takes is answered, with an Out for each In.
type each[In comparable, Out any] struct {
	path  string
	token func(In) string
	// check checks fields. If one take fails it, the whole request is refused before anything is done.
	check func(In) error
	// own handles a take of this dispatcher.
	own func(token, In) (Out, error)
	// problem returns the answer for a refused take among several.
	problem func(wire.Problem) Out
	// late corrects the answer of another dispatcher, which was asked that much later than this one. It is nil if not
	// needed.
	late func(out *Out, by time.Duration)
}

// list is a message about several takes.
type list[T any] struct {
	Takes []T `json:"takes"`
}

// answer handles a request about several takes, or about one if takes is nil. reply sends the answer about one.
func (e *each[In, Out]) answer(f *Front, r *request, one In, takes []In, reply func(Out) error) error {
	var none In
	switch {
	case takes == nil:
		out, err := e.answerOne(f, r, one)
		if err != nil {
			return err
		}
		return reply(out)
	case one != none:
		return errBoth
	}
	return e.answerAll(f, r, takes)
}

func (e *each[In, Out]) answerOne(f *Front, r *request, in In) (out Out, err error) {
	if err := e.check(in); err != nil {
		return out, err
	}
	t, own, err := f.own(r, tokenTake, e.token(in))
	if err != nil {
		return out, err
	}
	if own {
		out, err = e.own(t, in)
		return out, refused(err)
	}
	before := time.Since(r.started)
	if err := f.pass(r, t, e.path, in, &out); err != nil {
		return out, err
	}
	if e.late != nil {
		e.late(&out, before)
	}
	return out, nil
}

// answerAll returns the answers in the order of the takes. Each other dispatcher is asked once about all its takes. The
// dispatchers are looked up once: tokens of other dispatchers may be forged, and must not cost more than an element of
// the answer.
func (e *each[In, Out]) answerAll(f *Front, r *request, takes []In) error {
	if err := e.checkAll(takes); err != nil {
		return err
	}
	out := make([]Out, len(takes))
	elsewhere := map[Process][]int{}
	for i, in := range takes {
		t, own, err := f.own(r, tokenTake, e.token(in))
		switch {
		case err != nil:
		case own:
			out[i], err = e.own(t, in)
			err = refused(err)
		case r.forwarded:
			err = problem(wire.ProblemEnded, "%s", hasEnded)
		default:
			elsewhere[t.process] = append(elsewhere[t.process], i)
		}
		if err != nil {
			out[i] = e.refuse(err)
		}
	}
	missing := f.peers.missing(r.http.Context(), slices.Collect(maps.Keys(elsewhere)))
	var asked sync.WaitGroup
	for process, which := range elsewhere {
		if err := missing[process]; err != nil {
			for _, i := range which {
				out[i] = e.refuse(err)
			}
			continue
		}
		asked.Go(func() { e.pass(f, r, process, which, takes, out) })
	}
	asked.Wait()
	return r.answer(http.StatusOK, wire.TypeJSON, list[Out]{out})
}

// checkAll returns an error if the request is malformed. It does not check the takes' states.
func (e *each[In, Out]) checkAll(takes []In) error {
	if len(takes) == 0 || len(takes) > wire.MaxTakes {
		return problem(wire.ProblemInvalid, "takes: there are %d: send from 1 to %d", len(takes), wire.MaxTakes)
	}
	seen := make(map[string]int, len(takes))
	for i, in := range takes {
		token := e.token(in)
		if token == "" {
			return problem(wire.ProblemInvalid, "takes[%d].token: is missing", i)
		}
		if first, twice := seen[token]; twice {
			return problem(wire.ProblemInvalid, "takes[%d].token: is that of takes[%d], too: send each take once", i, first)
		}
		seen[token] = i
		if err := e.check(in); err != nil {
			wrong := accessError(err)
			return problem(wrong.Problem, "takes[%d].%s", i, wrong.Detail)
		}
	}
	return nil
}

// pass lets another dispatcher answer for its takes.
func (e *each[In, Out]) pass(f *Front, r *request, to Process, which []int, takes []In, out []Out) {
	var theirs list[Out]
	mine := list[In]{make([]In, 0, len(which))}
	for _, i := range which {
		mine.Takes = append(mine.Takes, takes[i])
	}
	before := time.Since(r.started)
	err := f.peers.send(r.http.Context(), to, r.user, e.path, mine, &theirs)
	if err == nil && len(theirs.Takes) != len(which) {
		err = fmt.Errorf("another dispatcher answers for %d of %d takes", len(theirs.Takes), len(which))
	}
	for n, i := range which {
		if err != nil {
			out[i] = e.refuse(err)
			continue
		}
		if out[i] = theirs.Takes[n]; e.late != nil {
			e.late(&out[i], before)
		}
	}
}

// refuse returns the answer for a refused take.
func (e *each[In, Out]) refuse(err error) Out { return e.problem(messageOf(accessError(err))) }

package workers

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
)

// errBoth refuses a request about several takes that has fields of a request about one.
var errBoth = problem(wire.ProblemInvalid, "takes: send them alone, or the fields of one take without takes")

// each says how a request about several takes is answered: with an Out for each In, in their order, as if each were
// alone.
type each[In, Out any] struct {
	path  string
	token func(In) string
	// check is about fields. One take that fails it has the whole request refused, before anything is done.
	check func(In) error
	// own answers for a take of this dispatcher.
	own func(token, In) (Out, error)
	// problem is the answer for a take that is refused.
	problem func(wire.Problem) Out
	// late corrects the answer of another dispatcher, which was asked so much later than this one; nil: it need not be.
	late func(out *Out, by time.Duration)
}

// list is a message about several takes.
type list[T any] struct {
	Takes []T `json:"takes"`
}

// answerAll answers a request about several takes. Each other dispatcher is asked once about those that are its own.
func answerAll[In, Out any](f *Front, r *request, e each[In, Out], takes []In) error {
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
			if out[i], err = e.own(t, in); err != nil {
				err = refused(err)
			}
		case r.forwarded:
			err = problem(wire.ProblemEnded, "%s", hasEnded)
		default:
			elsewhere[t.process] = append(elsewhere[t.process], i)
		}
		if err != nil {
			out[i] = e.refuse(err)
		}
	}
	var asked sync.WaitGroup
	for process, which := range elsewhere {
		asked.Go(func() { e.pass(f, r, process, which, takes, out) })
	}
	asked.Wait()
	return r.answer(http.StatusOK, wire.TypeJSON, list[Out]{out})
}

// checkAll says what is wrong with the request, whatever has become of the takes.
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

// pass has another dispatcher answer for its takes.
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

// refuse is the answer for a take that is refused.
func (e *each[In, Out]) refuse(err error) Out { return e.problem(messageOf(accessError(err))) }

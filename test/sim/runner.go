package sim

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/replica"
)

// runner runs a node's functions that block, as production's goroutines do: one at a time, until it waits for something
// in the world. So lives can be repeated.
type runner struct {
	n *Node
	// current is the routine that runs, nil while the world's own code does. parked are those that wait, and closing the
	// ones among them that wait for a channel.
	current *routine
	parked  []*routine
	closing []closing
}

var _ replica.Runner = (*runner)(nil)

// routine is a function that blocks. proceed lets it run, with false to end it; paused says that it waits or has ended.
type routine struct {
	proceed chan bool
	paused  chan struct{}
}

type closing struct {
	done   <-chan struct{}
	resume func()
}

// Go implements replica.Runner.
func (r *runner) Go(do func()) <-chan struct{} {
	c, done := &routine{make(chan bool), make(chan struct{})}, make(chan struct{})
	go func() {
		defer func() { c.paused <- struct{}{} }()
		defer close(done)
		if <-c.proceed {
			do()
		}
	}()
	r.run(c)
	return done
}

// run runs a routine until it waits or ends. Then it resumes the routines whose channel was closed.
func (r *runner) run(c *routine) {
	before := r.current
	r.current = c
	c.proceed <- true
	<-c.paused
	r.current = before
	if before != nil {
		return
	}
	for i := 0; i < len(r.closing); i++ {
		select {
		case <-r.closing[i].done:
			resume := r.closing[i].resume
			r.closing = slices.Delete(r.closing, i, i+1)
			resume()
			return // which has looked at the others
		default:
		}
	}
	r.n.run()
}

// wait parks the current routine until resume is called. begin may call it at once.
func (r *runner) wait(begin func(resume func())) {
	c := r.current
	if c == nil {
		panic("the world waits")
	}
	over, waits := false, false
	begin(func() {
		if over || r.over() {
			return
		}
		if over = true; waits {
			r.parked = slices.DeleteFunc(r.parked, func(other *routine) bool { return other == c })
			r.run(c)
		}
	})
	if over {
		return
	}
	if r.over() {
		runtime.Goexit()
	}
	waits = true
	r.parked = append(r.parked, c)
	c.paused <- struct{}{}
	if !<-c.proceed {
		runtime.Goexit()
	}
}

// over reports whether the incarnation has ended: its routines end when they wait the next time.
func (r *runner) over() bool { return r.n.Dead || r.n.Stopped != nil }

// end ends the routines that wait.
func (r *runner) end() {
	parked := r.parked
	r.parked, r.closing = nil, nil
	for _, c := range parked {
		c.proceed <- false
		<-c.paused
	}
}

// End ends what still waits in a world that does not go on.
func (w *World) End() {
	for _, n := range w.Nodes {
		n.runner.end()
	}
}

// Wait implements replica.Runner.
func (r *runner) Wait(done <-chan struct{}) {
	select {
	case <-done:
	default:
		r.wait(func(resume func()) { r.closing = append(r.closing, closing{done, resume}) })
	}
}

// Sleep implements replica.Runner.
func (r *runner) Sleep(ctx context.Context, d time.Duration) bool {
	r.wait(func(resume func()) { r.n.w.after(r.n.clock.takes(d), func() { r.n.local(resume) }) })
	return ctx.Err() == nil
}

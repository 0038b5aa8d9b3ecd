package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/work"
)

// What reconciles leave running, as with rota.Go: tasks. Production ends their contexts; each returns a moment after
// that, or by itself. They are flights, which write now and then.

// drawTasks decides whether reconciles start tasks: in one of four lives. They have a source of chance of their own, so
// that lives without them stay what they were.
func (c *Chaos) drawTasks() {
	if chance := rand.New(rand.NewPCG(c.opts.Seed, 6)); chance.IntN(4) == 0 { // must be repeatable
		c.tasks = chance
	}
}

// startTask has a reconcile start a task, now and then.
func (n *Node) startTask(f *flight) {
	if n.w.tasks == nil || f.gone || n.w.tasks.IntN(4) > 0 {
		return
	}
	ctx, returned, err := work.Extend(f.ctx)
	if err != nil {
		n.w.violate("no task", "%s reconciles %v, and cannot start a task: %v", n.ID, f.key, err)
		return
	}
	t := &flight{key: f.key, epoch: f.epoch, ctx: ctx, returned: returned}
	n.work.tasks = append(n.work.tasks, t)
	n.w.Counts.Tasks++
	n.w.after(n.w.span(time.Second, time.Minute), func() { n.local(func() { n.finish(t) }) })
	n.taskWrites(t)
	n.tasksEnd()
}

// span is a time between two, drawn for tasks.
func (w *World) span(least, most time.Duration) time.Duration {
	return least + time.Duration(w.tasks.Int64N(int64(most-least)))
}

// taskWrites has a task write now and then.
func (n *Node) taskWrites(t *flight) {
	n.w.after(n.w.span(100*time.Millisecond, 3*time.Second), func() {
		n.local(func() {
			if !t.over && t.ctx.Err() == nil {
				n.write(t)
				n.taskWrites(t)
			}
		})
	})
}

// tasksEnd has tasks return whose contexts have ended: after a moment, or now and then after seconds.
func (n *Node) tasksEnd() {
	for _, t := range n.work.tasks {
		if t.returning || t.ctx.Err() == nil {
			continue
		}
		t.returning = true
		wait := n.w.span(0, 100*time.Millisecond)
		if n.w.tasks.IntN(20) == 0 {
			wait = n.w.span(time.Second, 10*time.Second)
		}
		n.w.after(wait, func() { n.local(func() { n.finish(t) }) })
	}
}

// taskEnded tells production that a task has returned.
func (n *Node) taskEnded(t *flight) {
	n.work.tasks = slices.DeleteFunc(n.work.tasks, func(one *flight) bool { return one == t })
	n.answered(t.returned)
}

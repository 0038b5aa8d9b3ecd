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
func (ws *workers) startTask(f *flight) {
	if ws.w.tasks == nil || f.gone || ws.w.tasks.IntN(4) > 0 {
		return
	}
	ctx, returned, err := work.Extend(f.ctx)
	if err != nil {
		ws.w.violate("no task", "%s reconciles %v, and cannot start a task: %v", ws.n.ID, f.key, err)
		return
	}
	t := &flight{key: f.key, epoch: f.epoch, ctx: ctx, returned: returned}
	ws.tasks = append(ws.tasks, t)
	ws.w.Counts.Tasks++
	ws.w.after(ws.w.span(time.Second, time.Minute), func() { ws.n.local(func() { ws.finish(t) }) })
	ws.taskWrites(t)
	ws.tasksEnd()
}

// span is a time between two, drawn for tasks.
func (w *World) span(least, most time.Duration) time.Duration {
	return least + time.Duration(w.tasks.Int64N(int64(most-least)))
}

// taskWrites has a task write now and then.
func (ws *workers) taskWrites(t *flight) {
	ws.w.after(ws.w.span(100*time.Millisecond, 3*time.Second), func() {
		ws.n.local(func() {
			if !t.over && t.ctx.Err() == nil {
				ws.write(t)
				ws.taskWrites(t)
			}
		})
	})
}

// tasksEnd has tasks return whose contexts have ended: after a moment, or now and then after seconds.
func (ws *workers) tasksEnd() {
	for _, t := range ws.tasks {
		if t.returning || t.ctx.Err() == nil {
			continue
		}
		t.returning = true
		wait := ws.w.span(0, 100*time.Millisecond)
		if ws.w.tasks.IntN(20) == 0 {
			wait = ws.w.span(time.Second, 10*time.Second)
		}
		ws.w.after(wait, func() { ws.n.local(func() { ws.finish(t) }) })
	}
}

// taskEnded tells production that a task has returned.
func (ws *workers) taskEnded(t *flight) {
	ws.tasks = slices.DeleteFunc(ws.tasks, func(one *flight) bool { return one == t })
	ws.n.answered(t.returned)
}

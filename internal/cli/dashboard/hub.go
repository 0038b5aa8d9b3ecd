package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/cli/view"
)

// state is what pages show. It is immutable once published.
type state struct {
	// rota is the last Rota that was read, as JSON, and at when it was read; rota is nil if there was none.
	rota json.RawMessage
	at   time.Time
	// err is why the rota cannot be read now, or nil.
	err error
}

// hub publishes states to all open pages. It watches while there is at least one.
type hub struct {
	watch func(context.Context, func(*view.Rota, error)) error

	mu    sync.Mutex
	pages int
	last  state
	// changed is closed when last changes.
	changed chan struct{}
	// end ends the watch. turn counts watches, so that an old one does not publish.
	end  context.CancelFunc
	turn int
}

func newHub(watch func(context.Context, func(*view.Rota, error)) error) *hub {
	return &hub{watch: watch, changed: make(chan struct{})}
}

// join adds a page. The caller must call leave.
func (h *hub) join() (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pages++; h.pages == 1 {
		h.turn++
		ctx, cancel := context.WithCancel(context.Background())
		h.end, h.last = cancel, state{}
		go h.run(ctx, h.turn)
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.pages--; h.pages == 0 {
			h.end()
		}
	}
}

func (h *hub) run(ctx context.Context, turn int) {
	err := h.watch(ctx, func(r *view.Rota, err error) { h.publish(turn, r, err) })
	if ctx.Err() == nil {
		h.publish(turn, nil, errors.Join(errors.New("the watch has ended"), err))
	}
}

func (h *hub) publish(turn int, r *view.Rota, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if turn != h.turn {
		return
	}
	next := state{rota: h.last.rota, at: h.last.at, err: err}
	if err == nil {
		next.at = r.At
		shown := *r
		shown.History, shown.HistoryReach = nil, nil // the page does not show it, and it is large with many members
		if next.rota, next.err = json.Marshal(&shown); next.err != nil {
			next.rota, next.at = h.last.rota, h.last.at
		}
	}
	h.last = next
	close(h.changed)
	h.changed = make(chan struct{})
}

// latest returns the last state, and a channel that is closed at the next one.
func (h *hub) latest() (state, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.changed
}

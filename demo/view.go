package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

// showPeriod is the time between two lines about the slots and the load.
const showPeriod = 5 * time.Second

// view prints what happens, with the time since the start.
type view struct {
	out   io.Writer
	begun time.Time
	mu    sync.Mutex
}

func (v *view) log(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// If the terminal or log cannot be written, there is no other place to report that.
	_, _ = fmt.Fprintf(v.out, "%6.1fs  %s\n", time.Since(v.begun).Seconds(), fmt.Sprintf(format, args...))
}

// show prints who owns how many slots, and what the replicas and the load do, until ctx ends.
func (s *Show) show(ctx context.Context) {
	before, _ := s.work() // an error comes back at the end
	for await.Sleep(ctx, showPeriod) == nil {
		t, _ := s.follow.Latest()
		if t == nil {
			continue
		}
		counts := t.Counts()
		var shares []string
		for _, m := range t.Members {
			shares = append(shares, fmt.Sprintf("%s %d", m.Pod, counts[m.ID]))
		}
		if n := counts[""]; n > 0 {
			shares = append(shares, fmt.Sprintf("no owner %d", n))
		}
		now, _ := s.work()
		rate := float64(now-before) / showPeriod.Seconds()
		before = now
		c := s.load.Counts()
		s.view.log("  slots: %s; %.0f reconciles/s; %d Websites: %d updates, %d recreated, %d replaced",
			strings.Join(shares, ", "), rate, len(s.load.Sites()), c.Updates, c.Recreations, c.Replacements)
	}
}

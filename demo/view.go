package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// view shows what goes on: lines that stay, and, in a terminal, a picture below them that is drawn over and over.
type view struct {
	out   io.Writer
	width func() int // nil: no terminal

	mu      sync.Mutex
	now     string
	since   time.Time
	begun   time.Time
	picture []string
}

func newView(out io.Writer) *view {
	v := &view{out: out, begun: time.Now(), since: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		v.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 20 {
				return 80
			}
			return width
		}
	}
	return v
}

// log adds a line that stays.
func (v *view) log(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if v.width == nil {
		v.print("%6.1fs  %s\n", time.Since(v.begun).Seconds(), line)
		return
	}
	v.erase()
	v.print("%s\n", line)
	v.paint()
}

// title says what goes on now.
func (v *view) title(text string) {
	v.mu.Lock()
	v.now, v.since = text, time.Now()
	plain := v.width == nil
	v.mu.Unlock()
	if plain {
		v.log("%s", text)
	}
}

// draw replaces the picture; where there is no terminal it does nothing.
func (v *view) draw(s *scene) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.width == nil {
		return
	}
	v.erase()
	s.title, s.seconds = v.now, time.Since(v.since).Seconds()
	v.picture = s.lines(v.width())
	v.paint()
}

// clear removes the picture.
func (v *view) clear() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.erase()
	v.picture = nil
}

// print writes to a terminal or a log: nobody is left to be told that it cannot be written.
func (v *view) print(format string, args ...any) { _, _ = fmt.Fprintf(v.out, format, args...) }

func (v *view) erase() {
	if n := len(v.picture); n > 0 {
		v.print("\x1b[%dA\x1b[J", n)
	}
}

func (v *view) paint() {
	if len(v.picture) > 0 {
		v.print("%s\n", strings.Join(v.picture, "\n"))
	}
}

// scene is what the picture shows.
type scene struct {
	title   string
	seconds float64
	slots   int
	rows    []row
	unowned int
	load    string
}

type row struct {
	pod, build string
	owned      int
	// going and coming are slots on the way.
	going, coming int
	perSecond     float64
	note          string
}

// lines draws the scene, no line wider than width.
func (s *scene) lines(width int) []string {
	out := []string{"", fmt.Sprintf("▶ %s (%.0f s)", s.title, s.seconds)}
	bar := min(50, max(0, width-52))
	total := 0.0
	for _, r := range s.rows {
		total += r.perSecond
		moving := ""
		if r.coming > 0 {
			moving += fmt.Sprintf(" +%d", r.coming)
		}
		if r.going > 0 {
			moving += fmt.Sprintf(" -%d", r.going)
		}
		line := fmt.Sprintf("  %-7s %-3s ", r.pod, r.build)
		if s.slots > 0 && bar >= 8 {
			// A share of more than half of all slots is rare: the bar's full length is a half.
			scale := func(n int) int { return min(bar, 2*n*bar/s.slots) }
			stay := scale(r.owned - r.going)
			going := scale(r.owned) - stay
			coming := min(bar-stay-going, scale(r.coming))
			line += strings.Repeat("█", stay) + strings.Repeat("▒", going) + strings.Repeat("░", coming) +
				strings.Repeat(" ", bar-stay-going-coming)
		}
		out = append(out, line+fmt.Sprintf(" %3d slots%-9s %4.0f/s %s", r.owned, moving, r.perSecond, r.note))
	}
	foot := fmt.Sprintf("  %.0f reconciles/s", total)
	if s.unowned > 0 {
		foot += fmt.Sprintf(" · %d slots without owner", s.unowned)
	}
	out = append(out, foot+" · "+s.load)
	for i, line := range out {
		if runes := []rune(line); len(runes) >= width {
			out[i] = string(runes[:width-1])
		}
	}
	return out
}

// show draws the picture until ctx ends; where there is no terminal, it prints a line every five seconds.
func (e *engine) show(ctx context.Context) {
	defer e.view.clear()
	const each = 250 * time.Millisecond
	meter := newMeter()
	for i := 1; await.Sleep(ctx, each) == nil; i++ {
		s := e.scene(meter)
		e.view.draw(s)
		if e.view.width == nil && i%int(5*time.Second/each) == 0 {
			var shares []string
			total := 0.0
			for _, r := range s.rows {
				shares = append(shares, fmt.Sprintf("%s %d", r.pod, r.owned))
				total += r.perSecond
			}
			e.view.log("  slots: %s; %.0f reconciles/s; %s", strings.Join(shares, ", "), total, s.load)
		}
	}
}

func (e *engine) scene(m *meter) *scene {
	t, _ := e.follow.Latest()
	s := &scene{}
	rows := map[string]*row{}
	for _, p := range e.all() {
		select {
		case <-p.Done():
			continue
		default:
		}
		r := row{pod: p.pod, build: p.build, perSecond: m.rate(p)}
		if !p.Running() {
			r.note = "leaving"
		}
		rows[p.pod] = &r
	}
	if t != nil {
		s.slots = int(t.Slots)
		s.unowned = t.Counts()[""]
		s.add(t, rows)
	}
	for _, r := range rows {
		s.rows = append(s.rows, *r)
	}
	slices.SortFunc(s.rows, func(a, b row) int {
		if len(a.pod) != len(b.pod) {
			return len(a.pod) - len(b.pod)
		}
		return strings.Compare(a.pod, b.pod)
	})
	c := e.load.Counts()
	e.load.mu.Lock()
	defer e.load.mu.Unlock()
	s.load = fmt.Sprintf("%d Websites; %d updates, %d recreated, %d replaced; %d children harmed; %d certificates renewed",
		len(e.load.Sites()), c.Updates, c.Recreations, c.Replacements, e.load.tampered, e.load.renewed)
	return s
}

// add counts the table's slots into the rows.
func (s *scene) add(t *table.Table, rows map[string]*row) {
	of := func(id string) *row {
		m, ok := t.Member(id)
		if !ok {
			return &row{}
		}
		if rows[m.Pod] == nil {
			rows[m.Pod] = &row{pod: m.Pod, build: m.Build, note: "dead"}
		}
		return rows[m.Pod]
	}
	for _, m := range t.Members {
		of(m.ID)
	}
	for _, r := range t.Runs {
		if t.IsDuty(r.Slots.First) {
			continue
		}
		of(r.Owner).owned += r.Slots.Len()
		if r.Next != "" {
			of(r.Owner).going += r.Slots.Len()
			of(r.Next).coming += r.Slots.Len()
		}
	}
}

// meter tells how many reconciles per second a replica starts, over about two seconds.
type meter struct {
	samples map[string][]sample
}

type sample struct {
	at time.Time
	n  int
}

func newMeter() *meter { return &meter{samples: map[string][]sample{}} }

func (m *meter) rate(p *replica) float64 {
	n, _ := p.count() // an error comes back at the end
	m.samples[p.pod] = append(m.samples[p.pod], sample{time.Now(), n})
	if len(m.samples[p.pod]) > 9 {
		m.samples[p.pod] = m.samples[p.pod][1:]
	}
	first := m.samples[p.pod][0]
	if d := time.Since(first.at).Seconds(); d > 0.1 {
		return float64(n-first.n) / d
	}
	return 0
}

package sim

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/slot"
)

func rate(r float64) string { return strconv.FormatFloat(r, 'f', 2, 64) }

// Sizes of a drawing, in pixels.
const (
	left      = 150 // of the time axis
	width     = 1250
	barHeight = 15
	gap       = 9
)

// Window is the part of a life to draw, and which slots. The zero value is all of it, or the minute before something
// was violated and the slots that it is about with their neighbours.
type Window struct {
	From, To time.Duration
	Slots    slot.Set
}

// drawing is an SVG in the making.
type drawing struct {
	bytes.Buffer
	t        *Timeline
	from, to time.Duration
	rows     []slot.Slot
	row      float64 // height of one
	y        float64
}

// Draw writes an SVG: faults, owners by the table, and a lane for each pod, with its processes that lived in the
// window. What went on when the life ended is drawn up to the right edge.
func (t *Timeline) Draw(out io.Writer, title string, win Window) error {
	d := &drawing{t: t, from: win.From, to: win.To}
	d.choose(win)
	d.heading(title)
	d.faultBars()
	top := d.y
	d.owners()
	for _, pod := range d.pack() {
		d.pod(pod)
	}
	d.axis(top)
	for _, b := range t.broken {
		if d.in(b.at) {
			d.printf(`<line x1="%[1]s" y1="%.0[2]f" x2="%[1]s" y2="%.0[3]f" stroke="#d00000" stroke-width="2"/>`+"\n",
				d.x(b.at), top-4, d.y)
		}
	}
	height := d.y + 24
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %.0[2]f" `+
		`width="%[1]d" height="%.0[2]f" font-family="system-ui, sans-serif" font-size="11">
<defs><pattern id="paused" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">`+
		`<rect width="6" height="6" fill="#fff" fill-opacity=".55"/>`+
		`<line x1="0" y1="0" x2="0" y2="6" stroke="#666" stroke-width="2"/></pattern></defs>
<rect width="100%%" height="100%%" fill="#fff"/>
%[3]s</svg>
`, left+width+20, height, d.String())
	return err
}

// choose settles the window and the rows.
func (d *drawing) choose(win Window) {
	t := d.t
	if d.to == 0 || d.to > t.end {
		d.to = t.end + time.Second
	}
	if len(t.broken) > 0 && win.From == 0 && win.To == 0 {
		d.from = max(0, t.broken[0].at-time.Minute)
		d.to = t.broken[0].at + time.Second
	}
	rows := win.Slots
	if rows == (slot.Set{}) {
		for s := range t.slots {
			near := t.slots <= 32 || t.bad == (slot.Set{})
			for i := max(0, s-3); i <= min(s+3, t.slots-1) && !near; i++ {
				near = t.bad.Has(slot.Slot(i))
			}
			if near {
				rows.Add(slot.Slot(s))
			}
		}
	}
	d.rows = rows.Slots()
	d.row = min(9, max(1.5, 130/float64(max(1, len(d.rows)))))
}

func (d *drawing) printf(format string, args ...any) { _, _ = fmt.Fprintf(d, format, args...) }

func (d *drawing) in(at time.Duration) bool { return d.from <= at && at <= d.to }

// x is where a time lies.
func (d *drawing) x(at time.Duration) string { return num(d.at(at)) }

func (d *drawing) at(at time.Duration) float64 {
	at = min(max(at, d.from), d.to)
	return left + width*float64(at-d.from)/float64(d.to-d.from)
}

// num prints a coordinate briefly.
func num(v float64) string { return strconv.FormatFloat(float64(int(v*10+.5))/10, 'f', -1, 64) }

// box draws a rectangle over a span, if that lies in the window.
func (d *drawing) box(s span, y, height float64, style string) {
	if s.till < d.from || s.from > d.to {
		return
	}
	x := d.at(s.from)
	d.printf(`<rect x="%s" y="%s" width="%s" height="%s" %s/>`+"\n",
		num(x), num(y), num(max(.7, d.at(s.till)-x)), num(height), style)
}

func (d *drawing) text(x, y float64, style, text string) {
	d.printf(`<text x="%s" y="%s" %s>%s</text>`+"\n", num(x), num(y), style, html.EscapeString(text))
}

func (d *drawing) heading(title string) {
	d.text(10, 20, `font-size="15" font-weight="bold"`, title)
	d.y = 40
	for _, b := range d.t.broken[:min(2, len(d.t.broken))] {
		d.text(10, d.y, `fill="#d00000" font-size="13"`, fmt.Sprintf("%.3f s  %s", b.at.Seconds(), b.text))
		d.y += 18
	}
	x := 10.0
	for _, k := range []struct{ shape, text string }{
		{`<rect width="14" height="8" y="-8" fill="hsl(200,65%,60%)"/>`, "gate open (a row per slot, a colour per process)"},
		{`<line x2="14" y1="-4" y2="-4" stroke="#000" stroke-width="2"/>`, "in flight"},
		{`<circle cx="7" cy="-4" r="2.2" fill="#000"/>`, "write commits"},
		{`<rect width="14" height="8" y="-8" fill="url(#paused)" stroke="#999"/>`, "paused"},
		{`<rect width="14" height="8" y="-8" fill="#ffd9d0"/>`, "deadline passed"},
		{`<line x1="4" x2="4" y1="-8" stroke="#0a7a2f" stroke-width="1.5"/>` +
			`<line x1="10" x2="10" y1="-8" stroke="#999" stroke-width="1.5"/>`, "Lease written: open, shut"},
		{`<path d="M3,-8 L11,0 M11,-8 L3,0" stroke="#d00000" stroke-width="2"/>`, "Lease deleted"},
		{`<rect width="14" height="8" y="-8" fill="none" stroke="#d00000" stroke-width="1.5"/>`, "open in two"},
	} {
		d.printf(`<g transform="translate(%s,%s)">%s</g>`+"\n", num(x), num(d.y), k.shape)
		d.text(x+19, d.y, `fill="#444"`, k.text)
		x += 34 + 5.7*float64(len(k.text))
	}
	d.y += 20
}

// faultBars draws the faults, in as few lines as they fit in.
func (d *drawing) faultBars() {
	d.text(10, d.y+12, `font-weight="bold"`, "faults")
	var ends []float64
	for _, f := range d.t.faults {
		s := span{f.From, f.Till, ""}
		if s.till < d.from || s.from > d.to {
			continue
		}
		label := f.Fault.String()
		if f.Who != "" {
			label += " " + f.Who
		}
		x := d.at(s.from)
		end := max(d.at(s.till), x+6.2*float64(len(label))+8)
		line := slices.IndexFunc(ends, func(e float64) bool { return e < x })
		if line < 0 {
			line = len(ends)
			ends = append(ends, 0)
		}
		ends[line] = end + 3
		y := d.y + float64(line)*(barHeight+2)
		d.box(s, y, barHeight, `fill="#f3c77b"`)
		d.printf(`<line x1="%[1]s" y1="%[2]s" x2="%[1]s" y2="%[3]s" stroke="#b36b00" stroke-width="2"/>`+"\n",
			num(x), num(y), num(y+barHeight))
		d.text(x+4, y+11, "", label)
	}
	d.y += float64(max(1, len(ends)))*(barHeight+2) + gap
}

// owners draws who owns the slots by the table.
func (d *drawing) owners() {
	d.text(10, d.y+12, `font-weight="bold"`, "owners by the table")
	d.text(10, d.y+26, `fill="#666"`, "ticks: its changes")
	for i, s := range d.rows {
		y := d.y + float64(i)*d.row
		if d.row >= 7 {
			d.text(left-6, y+d.row-1, `text-anchor="end" font-size="8" fill="#888"`, s.String())
		}
		if d.t.owners == nil {
			continue
		}
		for _, o := range d.t.owners[s] {
			if l := d.t.byID[o.who]; l != nil {
				d.box(o, y, d.row, fmt.Sprintf(`fill="hsl(%d,65%%,72%%)"`, l.hue))
			}
		}
	}
	bottom := d.y + float64(len(d.rows))*d.row
	for _, m := range d.t.tables {
		if !d.in(m.at) {
			continue
		}
		colour := "#555"
		if !m.ok {
			colour = "#d00000"
		}
		d.printf(`<line x1="%[1]s" y1="%[2]s" x2="%[1]s" y2="%[3]s" stroke="%[4]s"><title>%[5]s</title></line>`+"\n",
			d.x(m.at), num(bottom), num(bottom+7), colour, html.EscapeString(m.text))
	}
	d.y = bottom + 7 + gap
}

// pack puts the processes that followed each other in a pod into one lane.
func (d *drawing) pack() [][]*lane {
	var out [][]*lane
	for _, l := range d.t.lanes {
		if l.life.from >= d.to || l.life.till <= d.from {
			continue
		}
		i := slices.IndexFunc(out, func(pod []*lane) bool {
			before := pod[len(pod)-1]
			return before.pod == l.pod && before.life.till <= l.life.from
		})
		if i < 0 {
			i = len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], l)
	}
	return out
}

// pod draws the processes of a pod; a low lane where they never had a slot open.
func (d *drawing) pod(pod []*lane) {
	height := 26.0
	for _, l := range pod {
		for _, s := range d.rows {
			for _, o := range l.open[s] {
				if o.from < d.to && o.till > d.from {
					height = float64(len(d.rows)) * d.row
				}
			}
		}
	}
	d.text(10, d.y+12, `font-weight="bold"`, pod[0].pod)
	d.text(10, d.y+24, `fill="#666" font-size="10"`, pod[0].about)
	names := d.at(pod[0].life.from)
	for i, l := range pod {
		room := float64(left + width)
		if i+1 < len(pod) {
			room = d.at(pod[i+1].life.from)
		}
		d.lane(l, height, room)
		if x := d.at(l.life.from); x >= names {
			style := fmt.Sprintf(`font-weight="bold" fill="hsl(%d,65%%,28%%)" font-size="10" `+
				`stroke="#fff" stroke-width="3" paint-order="stroke"`, l.hue)
			d.text(x+3, d.y+height-4, style, l.id)
			names = x + 7*float64(len(l.id)) + 4
		}
	}
	d.y += height + 8 + gap
}

// lane draws a process; room is where the next one begins.
func (d *drawing) lane(l *lane, height, room float64) {
	alive := l.life
	d.box(alive, d.y, height, `fill="#f2f2f2"`)
	for _, s := range l.lapsed {
		d.box(s, d.y, height, `fill="#ffd9d0"`)
	}
	line := map[slot.Slot]float64{}
	for i, s := range d.rows {
		y := d.y + float64(i)*d.row
		line[s] = y + d.row/2
		for _, o := range l.open[s] {
			d.box(o, y, d.row*.92, fmt.Sprintf(`fill="hsl(%d,65%%,60%%)"`, l.hue))
			for _, both := range d.twice(l, s, o) {
				d.box(both, y, d.row, `fill="none" stroke="#d00000" stroke-width="1.5"`)
			}
		}
	}
	for _, f := range l.inFlight {
		if y, ok := line[f.slot]; ok {
			d.box(f.span, y-.6, 1.2, `fill="#000" fill-opacity=".75"`)
		}
	}
	for _, w := range l.writes {
		if y, ok := line[w.slot]; ok && d.in(w.from) {
			d.printf(`<circle cx="%s" cy="%s" r="%s"/>`+"\n", d.x(w.from), num(y), num(min(2, d.row/2)))
		}
	}
	for _, p := range l.paused {
		d.box(p, d.y, height, `fill="url(#paused)" stroke="#999" stroke-width=".5"`)
	}
	y := d.y + height
	for _, r := range l.renewals {
		colour := "#999"
		if r.ok {
			colour = "#0a7a2f"
		}
		if d.in(r.at) {
			d.printf(`<path d="M%s,%sv6" stroke="%s" stroke-width="1.5"/>`+"\n", d.x(r.at), num(y+1), colour)
		}
	}
	for _, g := range l.gone {
		if d.in(g.at) {
			d.printf(`<path d="M%[1]s,%[2]sm-4,0l8,8m0,-8l-8,8" stroke="#d00000" stroke-width="2"/>`+"\n", d.x(g.at), num(y))
		}
	}
	if d.in(l.leaving) {
		d.printf(`<line x1="%[1]s" y1="%[2]s" x2="%[1]s" y2="%[3]s" stroke="#333" stroke-dasharray="3 2"/>`+"\n",
			d.x(l.leaving), num(d.y), num(y))
		d.text(d.at(l.leaving)+3, d.y+10, "", "SIGTERM")
	}
	if d.in(alive.till) {
		d.printf(`<line x1="%[1]s" y1="%[2]s" x2="%[1]s" y2="%[3]s" stroke="#000" stroke-width="2"/>`+"\n",
			d.x(alive.till), num(d.y), num(y))
		x := d.at(alive.till) + 4
		if fits := int((room - x) / 5.8); fits > 3 {
			d.text(x, d.y+11, "", shorten(l.how, min(fits, 90)))
		}
	}
}

// twice returns when the slot was open in another process as well, which was not dead.
func (d *drawing) twice(l *lane, s slot.Slot, o span) []span {
	var out []span
	for _, other := range d.t.lanes {
		if other == l {
			continue
		}
		for _, p := range other.open[s] {
			if both := (span{max(o.from, p.from), min(o.till, p.till), ""}); both.from < both.till {
				out = append(out, both)
			}
		}
	}
	return out
}

func shorten(text string, length int) string {
	if len(text) > length {
		return text[:length-1] + "…"
	}
	return text
}

// axis draws the seconds.
func (d *drawing) axis(top float64) {
	step := time.Second
	for _, s := range []time.Duration{2, 5, 10, 20, 30, 60} {
		if d.to-d.from > 25*step {
			step = s * time.Second
		}
	}
	for at := d.from.Truncate(step); at <= d.to; at += step {
		if !d.in(at) {
			continue
		}
		d.printf(`<line x1="%[1]s" y1="%[2]s" x2="%[1]s" y2="%[3]s" stroke="#000" stroke-opacity=".13"/>`+"\n",
			d.x(at), num(top-4), num(d.y))
		d.text(d.at(at), d.y+12, `text-anchor="middle" fill="#444"`, fmt.Sprintf("%d s", int(at.Seconds())))
	}
}

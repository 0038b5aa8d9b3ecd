package bench

import (
	"fmt"
	"image/color"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// part is one of those that a cost has.
type part struct {
	title string
	color color.Color
	of    func(*Result) float64
}

// The costs of a steady load, in parts.
var (
	cpuParts = []part{
		{"replicas", color.RGBA{0x11, 0x55, 0xbb, 0xff}, cpuEach.of},
		{"API server", color.RGBA{0xcc, 0x99, 0x33, 0xff}, serverEach.of},
		{"etcd", color.RGBA{0x99, 0x99, 0x99, 0xff}, etcdEach.of},
	}
	heapParts = []part{
		{"the greatest process", color.RGBA{0x22, 0x77, 0x33, 0xff}, greatest.of},
		{"all others", color.RGBA{0x99, 0xcc, 0x99, 0xff}, func(r *Result) float64 { return heap.of(r) - greatest.of(r) }},
	}
)

// costs is the name of the picture of what a series' steady load costs, beside a page; "": it has none.
func (r *Series) costs(base string) string {
	if len(r.costly()) == 0 {
		return ""
	}
	name := fmt.Sprintf("%s-%s-%d", base, r.Parameters.Workload, r.Parameters.Objects)
	if r.Parameters.Strip {
		name += "-stripped"
	}
	return name + ".svg"
}

// bar is what is drawn of a strategy with a number of replicas.
type bar struct {
	title   string
	results []*Result
}

// costly are the results of the steady load, of each strategy and number of replicas.
func (r *Series) costly() (out []bar) {
	numbers := r.replicas()
	for _, s := range Strategies() {
		for _, n := range numbers {
			if results := r.of(s.Name, n, "churn"); len(results) > 0 {
				out = append(out, bar{rowTitle(s, n, numbers), results})
			}
		}
	}
	return out
}

// drawCosts draws what the steady load costs, as an SVG.
func (r *Series) drawCosts(path string) (err error) {
	const width, title, row = 26 * vg.Centimeter, 3 * vg.Centimeter, 0.8 * vg.Centimeter
	height := title + row*vg.Length(len(r.costly()))
	var panels []*plot.Plot
	for _, panel := range []struct {
		title string
		parts []part
	}{
		{"Processor time for a change, ms", cpuParts}, {"Heap at rest, MB", heapParts},
	} {
		p, err := r.bars(panel.title, panel.parts)
		if err != nil {
			return err
		}
		panels = append(panels, p)
	}
	canvas := vgsvg.New(width, height)
	tiles := draw.Tiles{
		Rows: 1, Cols: len(panels), PadX: vg.Centimeter, PadTop: vg.Points(6), PadLeft: vg.Points(6), PadRight: vg.Centimeter,
	}
	for i, to := range plot.Align([][]*plot.Plot{panels}, tiles, draw.New(canvas))[0] {
		panels[i].Draw(to)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// bars draws a cost by its parts: a bar of each strategy, the first one at the top.
func (r *Series) bars(title string, parts []part) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = title
	p.X.Min = 0
	p.Legend.Top, p.Legend.XOffs, p.Legend.Padding = false, -vg.Points(4), vg.Points(2)
	rows := r.costly()
	slices.Reverse(rows)
	var names []string
	for _, row := range rows {
		names = append(names, row.title)
	}
	var below *plotter.BarChart
	most := make([]float64, len(rows))
	for _, part := range parts {
		var values plotter.Values
		for i, row := range rows {
			figure, _ := over(row.results, part.of)
			values = append(values, figure.Median)
			most[i] += figure.Median
		}
		bars, err := plotter.NewBarChart(values, 0.5*vg.Centimeter)
		if err != nil {
			return nil, err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width = true, part.color, 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(part.title, bars)
	}
	p.NominalY(names...)
	p.X.Max = slices.Max(most) * 1.7 // beside the bars, there is room for the legend
	return p, nil
}

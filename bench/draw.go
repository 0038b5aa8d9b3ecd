package bench

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// marks are those of the strategies: dark enough to be read on white, and told apart without colors by their shapes.
var marks = []draw.GlyphStyle{
	{Color: color.RGBA{0x77, 0x77, 0x77, 0xff}, Shape: draw.RingGlyph{}},
	{Color: color.RGBA{0x33, 0x33, 0x33, 0xff}, Shape: draw.SquareGlyph{}},
	{Color: color.RGBA{0x99, 0x66, 0x00, 0xff}, Shape: draw.TriangleGlyph{}},
	{Color: color.RGBA{0xaa, 0x22, 0x22, 0xff}, Shape: draw.CrossGlyph{}},
	{Color: color.RGBA{0x11, 0x55, 0xbb, 0xff}, Shape: draw.CircleGlyph{}},
	{Color: color.RGBA{0x00, 0x88, 0x99, 0xff}, Shape: draw.BoxGlyph{}},
	{Color: color.RGBA{0x22, 0x77, 0x33, 0xff}, Shape: draw.PyramidGlyph{}},
}

// mostScenarios is the number of replicas that most scenarios were measured with, of several the largest.
func (r *Series) mostScenarios() (best int) {
	measured := map[int]int{}
	for _, sc := range scenarios {
		for _, n := range r.replicas(sc.name) {
			measured[n]++
		}
	}
	for n, of := range measured {
		if of > measured[best] || of == measured[best] && n > best {
			best = n
		}
	}
	return best
}

// draw draws the longest waits in all scenarios, as an SVG: those of the first series, with the number of replicas that
// most scenarios were measured with.
func (r *Report) draw(path string) error {
	if len(r.Series) == 0 || len(r.Series[0].Results) == 0 {
		return fmt.Errorf("%s: there are no results to draw", path)
	}
	series := r.Series[0]
	n := series.mostScenarios()
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Longest wait of a change, %d replicas, %d objects", n, series.Parameters.Objects)
	p.Y.Label.Text = "seconds (logarithmic)"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	p.Add(plotter.NewGrid())
	var names []string
	for _, sc := range scenarios {
		if sc.loaded && slices.Contains(series.replicas(sc.name), n) {
			names = append(names, sc.name)
		}
	}
	p.NominalX(names...)
	strategies := slices.DeleteFunc(Strategies(), func(s Strategy) bool { return !series.ran(s) })
	for k, s := range strategies {
		beside := (float64(k) - float64(len(strategies)-1)/2) * 0.6 / float64(len(strategies))
		var points plotter.XYs
		for i, name := range names {
			if results := series.of(s.Name, n, name); len(results) > 0 {
				_, wait, _ := figures["wait-max"].over(results)
				points = append(points, plotter.XY{X: float64(i) + beside, Y: max(wait, 1) / 1000})
			}
		}
		if len(points) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		scatter.GlyphStyle, scatter.Radius = marks[k%len(marks)], vg.Points(4)
		p.Add(scatter)
		p.Legend.Add(s.Title, scatter)
	}
	p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
	p.Y.Min, p.Y.Max = 0.01, 1000 // above, there is room for the legend
	return p.Save(24*vg.Centimeter, 13*vg.Centimeter, path)
}

package bench

import (
	"fmt"
	"image/color"

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
	{Color: color.RGBA{0x88, 0x33, 0x99, 0xff}, Shape: draw.PlusGlyph{}},
	{Color: color.RGBA{0xcc, 0x55, 0x00, 0xff}, Shape: draw.BoxGlyph{}},
	{Color: color.RGBA{0x55, 0x55, 0x00, 0xff}, Shape: draw.TriangleGlyph{}},
}

// mostScenarios is the number of replicas of which most scenarios were measured, of several the largest.
func (r *Series) mostScenarios() int {
	best, most := 0, -1
	for _, n := range r.replicas() {
		measured := 0
		for _, sc := range scenarios() {
			if r.measured(n, sc.name) {
				measured++
			}
		}
		if measured > most || measured == most && n > best {
			best, most = n, measured
		}
	}
	return best
}

// Draw draws the longest waits in all scenarios, as an SVG: those of the first series, with the number of replicas of
// which most scenarios were measured.
func (r *Report) Draw(path string) error {
	if len(r.Series) == 0 || len(r.Series[0].Results) == 0 {
		return fmt.Errorf("%s: there are no results to draw", path)
	}
	series := r.Series[0]
	n := series.mostScenarios()
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Longest wait of a change, %d replicas, %d objects", n, series.Parameters.Objects)
	p.Y.Label.Text = "seconds (logarithmic)"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	var names []string
	for _, sc := range scenarios() {
		if sc.load != nil && series.measured(n, sc.name) {
			names = append(names, sc.name)
		}
	}
	p.NominalX(names...)
	p.Add(plotter.NewGrid())
	var ran []int
	for k, s := range Strategies() {
		if series.ran(s) {
			ran = append(ran, k)
		}
	}
	for place, k := range ran {
		s := Strategies()[k]
		beside := (float64(place) - float64(len(ran)-1)/2) * 0.6 / float64(len(ran))
		var points plotter.XYs
		for i, name := range names {
			figure, ok := over(series.of(s.Name, n, name), func(r *Result) float64 { return r.WaitMax })
			if ok && figure.Median > 0 {
				points = append(points, plotter.XY{X: float64(i) + beside, Y: figure.Median / 1000})
			}
		}
		if len(points) == 0 {
			continue
		}
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		scatter.GlyphStyle = marks[k%len(marks)]
		scatter.Radius = vg.Points(4)
		p.Add(scatter)
		p.Legend.Add(s.Title, scatter)
	}
	p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
	p.Y.Min, p.Y.Max = 0.01, 1000 // above, there is room for the legend
	p.Legend.Padding = vg.Points(2)
	return p.Save(24*vg.Centimeter, 13*vg.Centimeter, path)
}

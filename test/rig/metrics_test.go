package rig_test

import (
	"testing"

	"github.com/rota-dev/rota/test/rig"
)

func TestMetrics(t *testing.T) {
	m := rig.Metrics("# HELP a b\na 1\na_total 5\nb{verb=\"WATCH\",x=\"{ \"} 2\nb{verb=\"LIST\"} 4e1\n")
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{{"a", nil, 1}, {"b", nil, 42}, {"b", []string{`verb="WATCH"`}, 2}, {"c", nil, 0}} {
		if got := m.Sum(c.name, c.labels...); got != c.want {
			t.Errorf("%s %q: %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

package sim_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/sim"
	"github.com/rota-dev/rota/member"
)

// The seed is that of docs/timeline.svg: a newcomer makes a new table while others, whose Leases were deleted, still work.
const newcomer = 10353

func TestDraw(t *testing.T) {
	w, life := sim.DrawChaos(newcomer, member.ClauseNewcomersWait)
	if !w.Failed() {
		t.Fatal("nothing is violated without the clause: draw another seed in the docs")
	}
	var out bytes.Buffer
	if err := life.Draw(&out, "a <title>", sim.Window{}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	d := xml.NewDecoder(&out)
	for _, err := d.Token(); !errors.Is(err, io.EOF); _, err = d.Token() {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{w.Violations()[0].Rule, "a &lt;title&gt;", ">faults<", ">all deleted<", ">p1<", ">p2-2<", `stroke="#d00000" stroke-width="1.5"/>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the drawing", want)
		}
	}
	var part bytes.Buffer
	if err := life.Draw(&part, "", sim.Window{From: time.Second, To: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(part.String(), ">all deleted<") || part.Len() > len(text)/2 {
		t.Errorf("the drawing of one second has %d bytes, of %d, or faults of later", part.Len(), len(text))
	}
}

// To draw a life does not change it.
func TestDrawnLivesAreTheSame(t *testing.T) {
	for _, seed := range []uint64{72, sim.DeepFrom + 3} {
		drawn, _ := sim.DrawChaos(seed, 0)
		if plain := sim.RunChaos(seed, 0, nil); plain.Counts != drawn.Counts || plain.Now() != drawn.Now() {
			t.Errorf("seed %d: %v when drawn, %v otherwise", seed, drawn.Counts, plain.Counts)
		}
	}
}

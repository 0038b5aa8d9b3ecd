package sim

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// A life in which everything is deleted, and lists of any version are wrong.
const deleted = 130

func TestDraw(t *testing.T) {
	life := &Timeline{}
	w := runChaos(deleted, Options{Timeline: life}, spoiled{oldLists: true})
	if !w.Failed() {
		t.Fatal("nothing is violated: choose another seed")
	}
	var out bytes.Buffer
	if err := life.Draw(&out, "a <title>", Window{}); err != nil {
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
	if err := life.Draw(&part, "", Window{From: time.Second, To: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(part.String(), ">all deleted<") || part.Len() > len(text)/2 {
		t.Errorf("the drawing of one second has %d bytes, of %d, or faults of later", part.Len(), len(text))
	}
}

// To draw a life does not change it.
func TestDrawnLivesAreTheSame(t *testing.T) {
	for _, seed := range []uint64{3, 4} {
		drawn, _ := DrawChaos(seed)
		if plain := RunChaos(seed, nil); plain.Counts != drawn.Counts || plain.Now() != drawn.Now() {
			t.Errorf("seed %d: %v when drawn, %v otherwise", seed, drawn.Counts, plain.Counts)
		}
	}
}

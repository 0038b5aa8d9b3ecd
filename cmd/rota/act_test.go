package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// A drained member that gave all it can may keep a duty that nobody else can do: the result names it.
func TestDrainEndsWithWhatStays(t *testing.T) {
	tab := halves()
	tab.Members[0].Duties = "backup"
	for i := range tab.Members {
		tab.Members[i].MaxFormat = table.Format
	}
	tab.Put(tab.Members[0])
	tab.Update(slot.Count(tab.Total()).All(), func(r *table.Run) { r.Owner = "web-1-b" })
	tab.Update(slot.SetOf(slot.Range{First: 256, Last: 256}), func(r *table.Run) { r.Owner = "web-0-a" })
	tab.PutDrain("web-0-a", 5, "", "")
	var out strings.Builder
	a := &actor{cmd: &cobra.Command{}}
	a.cmd.SetOut(&out)
	_, done, err := a.drainProgress(tab, "web-0-a")
	if !done || err != nil || !strings.Contains(out.String(), "nothing left to give; the member keeps what no other member can run: duty backup") {
		t.Errorf("done %v, %v: %s", done, err, out.String())
	}
}

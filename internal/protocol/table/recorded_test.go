package table_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/test/require"
)

// recorded returns the tables that builds of former times have written, by the names of the files: the format, and
// whether it is abbreviated. Each has all that its format can express, and the former formats.
func recorded(t *testing.T) map[string]map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/recorded/*.yaml")
	if err != nil || len(paths) != 2*table.Format {
		t.Fatalf("%d recorded tables, error %v, want two for each of %d formats", len(paths), err, table.Format)
	}
	all := map[string]map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		data := map[string]string{}
		require.NoError(t, yaml.Unmarshal(text, &data))
		all[strings.TrimSuffix(filepath.Base(path), ".yaml")] = data
	}
	return all
}

// TestRecordedTables: what former builds wrote is read, and written again byte by byte, so that they read it, too. Never
// write these files anew: a table of a format has the form that it had when the format came.
func TestRecordedTables(t *testing.T) {
	for name, data := range recorded(t) {
		tab, err := table.Decode(data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(data, table.Encode(tab)); d != "" {
			t.Errorf("%s is written otherwise (-recorded +written):\n%s", name, d)
		}
		format, err := strconv.Atoi(name[:1])
		require.NoError(t, err)
		has := []bool{
			len(tab.Members) >= 3 && tab.At(1).Ready && tab.At(255).Unsettled && tab.Notes[1763712000043].Versions["Job.batch"] == "list",
			len(tab.Gone) == 2 && tab.Gone[1].Name == "system:b/c",
			tab.Total() == 259 && tab.Older > 0 && tab.Members[1].Duties != tab.Members[0].Duties,
			tab.Paused() && tab.Drained("web-1-x7k2p") && tab.Drains[0].By == "system:serviceaccount:ops:on call",
			tab.Canary.Build == "v8" && tab.Canary.Share() == 20 && len(tab.Pins) == 1,
		}
		for i, there := range has {
			if there != (i < format) {
				t.Errorf("%s: has what format %d brought: %t", name, i+1, there)
			}
		}
	}
}

// TestRecordedTablesWithMore: fields that this program does not know are left out when it writes, and formats that it
// does not know are refused.
func TestRecordedTablesWithMore(t *testing.T) {
	for name, data := range recorded(t) {
		want, err := table.Decode(data)
		require.NoError(t, err)
		data["weather"] = "fine"
		got, err := table.Decode(data)
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s with another field: %v", name, err)
		}
		if _, has := table.Encode(got)["weather"]; has {
			t.Errorf("%s: the other field is written, too", name)
		}
		data["format"] = strconv.Itoa(table.Format + 1)
		_, err = table.Decode(data)
		require.ErrorSays(t, err, table.ErrFormat.Error())
	}
}

// TestOrdersThatEnd: a table without what a format brought is one of the format before, byte by byte: this is what a
// process reads that joins in a rollback.
func TestOrdersThatEnd(t *testing.T) {
	all := recorded(t)
	for _, size := range []string{"small", "large"} {
		tab, err := table.Decode(all["5-"+size])
		require.NoError(t, err)
		for _, format := range []int{table.PlaceFormat, table.OrderFormat} {
			tab.DropOrders(format)
			tab.Seal(tab.Epoch + 1)
			want, got := all[strconv.Itoa(format-1)+"-"+size], table.Encode(tab)
			for _, field := range []string{"epoch", "members", "classes"} { // they differ in the formats that members read
				want[field], got[field] = "", ""
			}
			for field, text := range want {
				if text == "" && got[field] == "" {
					delete(want, field)
					delete(got, field)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s without format %d (-recorded +written):\n%s", size, format, d)
			}
		}
	}
}

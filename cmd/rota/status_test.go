package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

// shown is a rota in which much goes on.
func shown() *view.Rota {
	now := time.Unix(1_763_712_345, 0)
	return &view.Rota{
		Namespace: "ns", Name: "web", At: now, Epoch: 43, Slots: 256, Key: "Name", Fence: "none",
		Members: []view.Member{
			{
				ID: "web-0-a", Pod: "web-0", Build: "v7", Joined: now.Add(-time.Hour), Weight: 1, Owned: 85, Open: ptr.To(85), Coming: 43,
				Load: ptr.To(2.345), Objects: ptr.To(1200), Renewed: ptr.To(now.Add(-2 * time.Second)), Lease: 15, Left: ptr.To(13.0), Gate: "open", State: view.Activating,
			},
			{
				ID: "web-1-b", Pod: "web-1", Joined: now.Add(-90 * time.Second), Weight: 1, Owned: 43, Going: 43, Duties: 1,
				OldestWaiting: ptr.To(4.0), Left: ptr.To(-5.2), Gate: "shut", State: view.Silent,
			},
		},
		Balance: view.BalanceLoad,
		Hottest: []view.Hot{{First: 17, Last: 17, Member: "web-0-a", Workers: 1.254}, {First: 20, Last: 21, Member: "web-0-a", Workers: 0.5}},
		HottestObjects: []view.HotObject{{Kind: "Website.example.com", Namespace: "team-a", Name: "big", Controller: "website", Slot: 17,
			Member: "web-0-a", Workers: 0.91}},
		Duties: []view.Duty{{Name: "backup", Owner: "web-1-b", Next: "web-0-a", State: "Moving"}, {Name: "janitor", State: "Nobody"}},
		Moves: []view.Move{
			{First: 85, Last: 127, From: "web-1-b", To: "web-0-a", Phase: "drain", Seconds: ptr.To(1.5)},
			{First: 256, Last: 256, Duty: "backup", From: "web-1-b", To: "web-0-a", Phase: "warm"},
		},
		Problems: []view.Problem{{Severity: view.Error, What: view.SlotUnowned, Slots: "128-255", Message: "no member owns them"},
			{Severity: view.Warn, What: view.KeyFails, Slots: "7", Member: "web-0-a", Message: "it fails"}},
		Handovers: []view.Handover{{
			Slots: "0-84", Count: 85, From: "web-9-z", To: "web-0-a", Cause: "handed", Epoch: 41, Ended: now.Add(-time.Minute),
			Warm: 0.21, Drain: 0.055, Activate: 12.3,
		}},
		Differences: []string{"members differ in Label: a (web-0-a), b (web-1-b)"},
		Unknown:     []view.Unknown{{What: "warnings", Error: "forbidden:\n  no"}},
		Table:       &table.Table{Gone: []table.Gone{{Slot: 3}, {Slot: 5}}},
	}
}

func TestPrintStatus(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, printStatus(&out, paint{}, shown(), false))
	golden.File(t, "testdata/status_printed.txt", out.String())
	out.Reset()
	r := shown()
	r.Worst = []view.KeyHealth{{Member: "web-0-a", Controller: "website", Namespace: "a", Name: "hello", Slot: 9,
		Text: "has failed 12 times in a row"}}
	require.NoError(t, printStatus(&out, paint{on: true}, r, true))
	for _, want := range []string{"GATE", "2s ago", "missing", "\x1b[31mSilent\x1b[0m", "\x1b[31m× \x1b[0mSlotUnowned",
		"(the worst of each member):\n", "a/hello  web-0-a  slot 9  website  has failed 12 times in a row\n",
		"slots that keep the most workers busy:\n", "web-0-a  1.25 workers\n", "objects that keep the most workers busy:\n",
		"Website.example.com team-a/big  web-0-a  slot 17  website  0.91 workers\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("wide, in color: no %q in\n%s", want, out.String())
		}
	}
}

// What may still be so and what is over are apart, each newest first. A rule to add keeps its lines.
func TestPrintWarnings(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	ago := func(d time.Duration, w view.Warning) view.Warning {
		w.At = now.Add(-d)
		return w
	}
	r := &view.Rota{At: now, Warnings: []view.Warning{
		ago(40*time.Minute, view.Warning{Member: "web-0", Reason: "Lapsed", Message: "no renewal", Over: "it has renewed its Lease since"}),
		ago(4*time.Minute, view.Warning{Member: "web-0", ID: "web-0-x", Reason: "DutyFails", Message: "duty a: all"}),
		ago(3*time.Minute, view.Warning{Member: "web-1", ID: "web-1-y", Reason: view.SlotHeldBack, Message: "slot 3"}),
		ago(2*time.Minute, view.Warning{Member: "web-2", Reason: "PermissionMissing", Message: "add:\n- apiGroups: [\"\"]\n  verbs: [\"get\"]"}),
		ago(90*time.Second, view.Warning{Member: "web-1", Reason: "Expelled", About: "web-2-z", Message: "member web-2-z did not renew"}),
		ago(time.Minute, view.Warning{Reason: "TableLost", Message: "the table\nis missing", Over: "there is a table"}),
	}}
	var out bytes.Buffer
	printWarnings(&out, r)
	golden.File(t, "testdata/warnings_printed.txt", out.String())
	out.Reset()
	if printWarnings(&out, &view.Rota{At: now}); out.Len() > 0 {
		t.Errorf("of none: %s", out.String())
	}
	r.Warnings = nil
	for n := range maxWarnings + 3 {
		r.Warnings = append(r.Warnings, ago(time.Duration(maxWarnings+2-n)*4*time.Minute,
			view.Warning{Member: "web-0", Reason: "Lapsed", Message: fmt.Sprint("message ", n)}))
	}
	out.Reset()
	if printWarnings(&out, r); strings.Count(out.String(), " ago ") != maxWarnings || !strings.Contains(out.String(), "3 older ones left out") ||
		!strings.Contains(out.String(), "message 12\n") {
		t.Errorf("got:\n%s\nwant the last %d of %d", out.String(), maxWarnings, len(r.Warnings))
	}
}

// Programs read the same in JSON and YAML.
func TestOutput(t *testing.T) {
	var out bytes.Buffer
	if done, err := (&output{"json"}).data(&out, shown()); !done || err != nil {
		t.Fatal(done, err)
	}
	var back view.Rota
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Members) != 2 || *back.Members[0].Left != 13 || back.Slots != slot.Count(256) {
		t.Errorf("%v: %+v", err, back)
	}
	out.Reset()
	if done, err := (&output{"yaml"}).data(&out, shown()); !done || err != nil || !strings.Contains(out.String(), "\nepoch: 43\n") {
		t.Errorf("%v %v:\n%s", done, err, out.String())
	}
	if done, _ := (&output{"wide"}).data(&out, nil); done {
		t.Error("wide is for people")
	}
}

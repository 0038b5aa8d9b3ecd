package coverage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/coverage"
	"github.com/rota-dev/rota/slot"
)

var (
	website = schema.GroupKind{Group: "web.example.com", Kind: "Website"}
	cm      = schema.GroupKind{Kind: "ConfigMap"}
)

func full() *coverage.Report {
	r := &coverage.Report{
		Member: "web-0-x7k2p",
		Digests: coverage.Digests{
			website: {0: {Objects: 12, Hashes: 0x5f3ac0de00000001}, 90: {Objects: 1, Hashes: 7}},
			cm:      {},
		},
		Owners:  map[schema.GroupKind]map[schema.GroupKind]bool{cm: {website: true, {Kind: "Node"}: false}},
		Waiting: map[slot.Slot]time.Duration{7: 12 * time.Second},
	}
	r.Open.AddRange(slot.Range{First: 0, Last: 84})
	r.Open.Add(90)
	return r
}

func TestReportsAreText(t *testing.T) {
	data := full().Encode()
	want := "ConfigMap owned-by Node:cluster Website.web.example.com:namespaced\nWebsite.web.example.com\n0 12 5f3ac0de00000001\n90 1 0000000000000007\n"
	if got := data["objects"]; got != want {
		t.Errorf("objects:\n%s\nwant:\n%s", got, want)
	}
	back, err := coverage.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full(), back, cmp.AllowUnexported(slot.Set{})); diff != "" {
		t.Error(diff)
	}
}

func TestBadReports(t *testing.T) {
	for name, change := range map[string]struct{ field, text, word string }{
		"no member":        {"member", "", "member"},
		"bad slot":         {"open", "0-84 4096", "4096"},
		"bad range":        {"open", "9-3", "9-3"},
		"slot before kind": {"objects", "0 1 2\n", "line 1"},
		"bad hash":         {"objects", "ConfigMap\n0 1 xyz\n", "line 2"},
		"bad owner":        {"objects", "ConfigMap owned-by Node\n", "line 1"},
		"no owner":         {"objects", "ConfigMap owned-by\n", "line 1"},
		"bad waiting":      {"waiting", "7\n", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			data := full().Encode()
			data[change.field] = change.text
			if _, err := coverage.Decode(data); err == nil || !strings.Contains(err.Error(), change.word) || !strings.Contains(err.Error(), change.field) {
				t.Errorf("error %v, want one that names %q and the field %s", err, change.word, change.field)
			}
		})
	}
}

// FuzzDecode: whatever can be read is written the same way again.
func FuzzDecode(f *testing.F) {
	data := full().Encode()
	f.Add(data["member"], data["open"], data["objects"], data["waiting"])
	f.Add("m", "", "", "")
	f.Fuzz(func(t *testing.T, member, open, objects, waiting string) {
		r, err := coverage.Decode(map[string]string{"member": member, "open": open, "objects": objects, "waiting": waiting})
		if err != nil {
			return
		}
		text := r.Encode()
		again, err := coverage.Decode(text)
		if err != nil {
			t.Fatalf("%v\n%v", err, text)
		}
		if diff := cmp.Diff(text, again.Encode()); diff != "" {
			t.Error(diff)
		}
	})
}

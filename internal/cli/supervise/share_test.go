package supervise

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

var widgets = schema.GroupKind{Group: "example.com", Kind: "Widget"}

// The selectors of members that share the slots select each value of the label exactly once.
func TestSelectorsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := slot.Count(1 << rapid.IntRange(1, 6).Draw(t, "log of slots"))
		owners := rapid.SliceOfN(rapid.IntRange(0, 2), int(count), int(count)).Draw(t, "owners")
		var sets [3]slot.Set
		for n, owner := range owners {
			sets[owner].Add(slot.Slot(n))
		}
		label := sharding.HashLabel(slot.KeyName, widgets)
		for owner, set := range sets {
			if set.Empty() {
				continue
			}
			text, err := share{slots: set, count: count, key: slot.KeyName, kinds: []schema.GroupKind{widgets}, of: &Command{}}.Selector()
			if err != nil {
				t.Fatal(err)
			}
			selector, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := metav1.ParseToLabelSelector(text); err != nil {
				t.Fatalf("parsers without < and > do not read it: %v", err)
			}
			if selector.Matches(labels.Set{}) {
				t.Fatalf("%q selects objects without the label", text)
			}
			for value := range slot.MaxCount {
				of := value / (slot.MaxCount / int(count))
				if got, want := selector.Matches(labels.Set{label: fmt.Sprint(value)}), owners[of] == owner; got != want {
					t.Fatalf("%q selects %d: %t, want %t", text, value, got, want)
				}
			}
		}
	})
}

func TestCommands(t *testing.T) {
	for _, c := range []struct {
		args, key, want, err string
	}{
		{args: "prog | --shard={{.Ordinal}} | --of={{.Count}} | --port={{add 8080 .Ordinal}}", want: " | prog --shard=3 --of=4 --port=8083"},
		{args: "A=1 | NS={{.Namespaces}} | prog | --x=y", key: "Namespace", want: "A=1 NS=a,b | prog --x=y"},
		{args: "prog | -l | {{.Selector}}", want: " | prog -l " + sharding.HashLabel(slot.KeyName, widgets) + " in (3072,3073"},
		{args: "prog | --all", err: "every process would work on all objects"},
		{args: "A=1", err: "there is no command"},
		{args: "prog | {{.Ordinal}} | {{.Selector}}", err: "cannot be combined"},
		{args: "prog | {{.Namespaces}}", err: "--key Namespace"},
		{args: "prog | {{.Shard}}", err: "Shard"},
		{args: "prog | {{.Ordinal", err: "unclosed action"},
	} {
		s := share{count: 4, key: slot.KeyName, kinds: []schema.GroupKind{widgets}}
		if c.key != "" {
			s.key = slot.KeyNamespace
		}
		command, err := ParseCommand(strings.Split(c.args, " | "))
		if err == nil {
			err = command.check(s)
		}
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %s", c.args, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		s.slots = slot.SetOf(slot.Range{First: 3, Last: 3})
		s.namespaces = func(slot.Set) []string { return []string{"a", "b"} }
		l, err := command.with(s)
		if got := strings.Join(l.env, " ") + " | " + strings.Join(l.args, " "); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.args, got, err, c.want)
		}
	}
}

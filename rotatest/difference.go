package rotatest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// difference lists the fields that differ, each with both values, or returns "".
func difference(want, got map[string]any) string {
	got = runtime.DeepCopyJSON(got)
	f := fields{lines: reorder("", want, got)}
	cmp.Equal(want, got, cmp.Reporter(&f))
	return strings.Join(f.lines, "\n")
}

// reorder sorts each list in got that has the same elements as in want into the order of want, and returns their paths.
func reorder(path string, want, got any) (lines []string) {
	switch got := got.(type) {
	case map[string]any:
		want, _ := want.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(got)) {
			lines = append(lines, reorder(path+named(key), want[key], got[key])...)
		}
	case []any:
		want, _ := want.([]any)
		sorted := func(list []any) []any {
			return slices.SortedFunc(slices.Values(list), byText)
		}
		if !reflect.DeepEqual(want, got) && reflect.DeepEqual(sorted(want), sorted(got)) {
			copy(got, want)
			return []string{strings.TrimPrefix(path, ".") + ": the same elements in another order"}
		}
		for i := range min(len(want), len(got)) {
			lines = append(lines, reorder(fmt.Sprintf("%s[%d]", path, i), want[i], got[i])...)
		}
	}
	return lines
}

func byText(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }

// named returns the notation of a step to a field.
func named(key string) string {
	if strings.ContainsAny(key, "./") {
		return fmt.Sprintf("[%q]", key)
	}
	return "." + key
}

// fields is a cmp.Reporter that collects the fields that differ.
type fields struct {
	path  cmp.Path
	lines []string
}

// PushStep implements cmp.Reporter.
func (f *fields) PushStep(step cmp.PathStep) { f.path = append(f.path, step) }

// PopStep implements cmp.Reporter.
func (f *fields) PopStep() { f.path = f.path[:len(f.path)-1] }

// Report implements cmp.Reporter.
func (f *fields) Report(result cmp.Result) {
	if result.Equal() {
		return
	}
	want, got := f.path.Last().Values()
	f.lines = append(f.lines, fmt.Sprintf("%s: -%s +%s", f.name(), text(want), text(got)))
}

// name returns the path in the usual notation, such as status.conditions[0].reason.
func (f *fields) name() string {
	name := ""
	for _, step := range f.path {
		switch step := step.(type) {
		case cmp.MapIndex:
			name += named(step.Key().String())
		case cmp.SliceIndex:
			if at := step.Key(); at >= 0 {
				name += fmt.Sprintf("[%d]", at)
			} else {
				name += "[]" // only one side has it
			}
		}
	}
	return strings.TrimPrefix(name, ".")
}

const longest = 300

func text(v reflect.Value) string {
	if !v.IsValid() {
		return "nothing"
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v.Interface()); err != nil {
		return fmt.Sprint(v)
	}
	if out.Len() > longest {
		return out.String()[:longest] + "..."
	}
	return strings.TrimSpace(out.String())
}

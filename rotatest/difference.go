package rotatest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// difference names the fields that differ, each with both values; "" if none does.
func difference(want, got map[string]any) string {
	var f fields
	cmp.Equal(want, got, cmp.Reporter(&f))
	return strings.Join(f.lines, "\n")
}

// fields is a cmp.Reporter of the fields that differ.
type fields struct {
	path  cmp.Path
	lines []string
}

// PushStep is part of cmp.Reporter.
func (f *fields) PushStep(step cmp.PathStep) { f.path = append(f.path, step) }

// PopStep is part of cmp.Reporter.
func (f *fields) PopStep() { f.path = f.path[:len(f.path)-1] }

// Report is part of cmp.Reporter.
func (f *fields) Report(result cmp.Result) {
	if result.Equal() {
		return
	}
	want, got := f.path.Last().Values()
	f.lines = append(f.lines, fmt.Sprintf("%s: -%s +%s", f.name(), text(want), text(got)))
}

// name is the path as people write it, such as status.conditions[0].reason.
func (f *fields) name() string {
	name := ""
	for _, step := range f.path {
		switch step := step.(type) {
		case cmp.MapIndex:
			if key := step.Key().String(); strings.ContainsAny(key, "./") {
				name += fmt.Sprintf("[%q]", key)
			} else {
				name += "." + key
			}
		case cmp.SliceIndex:
			if at := step.Key(); at >= 0 {
				name += fmt.Sprintf("[%d]", at)
			} else {
				name += "[]" // only one of the two has it
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

package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
)

const (
	fieldSelections = "selections"
	// maxSelections is the size in bytes above which selections are left out.
	maxSelections = 16 << 10
	// allNamespaces stands for all namespaces.
	allNamespaces = "*"
)

// encodeSelections writes a line for each combination of namespaces and selectors, with the kinds that use it. So
// caches limited to hundreds of namespaces list these only once.
func (r *Report) encodeSelections() string {
	kindsOf := map[string][]string{} // by the first part of the line
	for _, kind := range slices.SortedFunc(maps.Keys(r.Selections), byName) {
		namespaces := map[sharding.Selectors][]string{}
		for _, s := range r.Selections[kind] {
			name := s.Namespace
			if name == "" {
				name = allNamespaces
			}
			namespaces[s.Selectors] = append(namespaces[s.Selectors], name)
		}
		for by, names := range namespaces {
			slices.Sort(names)
			head := fmt.Sprintf("%q %q %s", by.Label, by.Field, strings.Join(names, ","))
			kindsOf[head] = append(kindsOf[head], kind.String())
		}
	}
	var out strings.Builder
	for _, head := range slices.Sorted(maps.Keys(kindsOf)) {
		fmt.Fprintf(&out, "%s %s\n", head, strings.Join(kindsOf[head], " "))
	}
	return out.String()
}

func (r *Report) decodeSelections(text string) error {
	for i, line := range lines(text) {
		words, err := quotedFields(line)
		if err != nil || len(words) < 4 {
			return r.lineError(fieldSelections, i, line)
		}
		if r.Selections == nil {
			r.Selections = map[schema.GroupKind][]sharding.Selection{}
		}
		for _, name := range words[3:] {
			kind := schema.ParseGroupKind(name)
			for namespace := range strings.SplitSeq(words[2], ",") {
				s := sharding.Selection{Namespace: namespace, Selectors: sharding.Selectors{Label: words[0], Field: words[1]}}
				if namespace == allNamespaces {
					s.Namespace = ""
				}
				r.Selections[kind] = append(r.Selections[kind], s)
			}
		}
	}
	for _, selections := range r.Selections {
		slices.SortFunc(selections, sharding.Selection.Compare)
	}
	return nil
}

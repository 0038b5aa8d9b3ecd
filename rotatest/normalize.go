package rotatest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/names"
)

var (
	timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)
	uuids     = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
)

// normalize removes from objects what differs between two runs although nothing is wrong: values that the API server
// assigns, times, and the random parts of generated names.
func normalize(all []*unstructured.Unstructured) *state {
	all = slices.Clone(all)
	slices.SortFunc(all, byName)
	given := canonicalNames(all)
	s := &state{objects: map[string]map[string]any{}, from: map[string]*unstructured.Unstructured{}}
	uids := map[string]string{}
	for _, obj := range all {
		uids[string(obj.GetUID())] = "<uid of " + given.replace(keyOf(obj)) + ">"
	}
	for _, obj := range all {
		key := given.replace(keyOf(obj))
		s.objects[key], s.from[key] = normalized(obj, given, uids), obj
	}
	return s
}

// keyOf is nameOf with the kind's group, since kinds of different groups may have the same name.
func keyOf(obj *unstructured.Unstructured) string {
	return describe(groupKind(obj).String(), client.ObjectKeyFromObject(obj))
}

func nameOf(obj *unstructured.Unstructured) string {
	return describe(obj.GetKind(), client.ObjectKeyFromObject(obj))
}

// generated reports whether the API server chose the end of an object's name.
func generated(obj *unstructured.Unstructured) bool {
	prefix := obj.GetGenerateName()
	return prefix != "" && strings.HasPrefix(obj.GetName(), prefix) && obj.GetName() != prefix
}

// replacements are pairs of a text and its replacement, longer texts first.
type replacements [][2]string

func (r replacements) replace(text string) string {
	for _, pair := range r {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

func replacing(m map[string]string) (r replacements) {
	for _, from := range slices.Sorted(maps.Keys(m)) {
		r = append(r, [2]string{from, m[from]})
	}
	slices.SortStableFunc(r, func(a, b [2]string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	return r
}

// canonicalNames numbers objects with generated names by their content.
func canonicalNames(all []*unstructured.Unstructured) replacements {
	plain, content := map[string]string{}, map[*unstructured.Unstructured]string{}
	groups := map[string][]*unstructured.Unstructured{}
	for _, obj := range all {
		if generated(obj) {
			plain[obj.GetName()] = obj.GetGenerateName() + "<generated>"
			group := groupKind(obj).String() + " " + obj.GetNamespace() + "/" + obj.GetGenerateName()
			groups[group] = append(groups[group], obj)
		}
	}
	anonymous := replacing(plain)
	numbered := map[string]string{}
	for _, group := range groups {
		for _, obj := range group {
			text, _ := json.Marshal(normalized(obj, anonymous, nil)) // cannot fail for strings and numbers
			content[obj] = string(text)
		}
		slices.SortStableFunc(group, func(a, b *unstructured.Unstructured) int { return cmp.Compare(content[a], content[b]) })
		for i, obj := range group {
			numbered[obj.GetName()] = fmt.Sprintf("%s<generated %d>", obj.GetGenerateName(), i+1)
		}
	}
	return replacing(numbered)
}

// assigned are the metadata fields that the API server sets.
var assigned = []string{
	"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "deletionGracePeriodSeconds",
}

// normalized returns an object's content without what differs between two runs.
func normalized(obj *unstructured.Unstructured, names replacements, uids map[string]string) map[string]any {
	fields := obj.DeepCopy().Object
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		for _, field := range assigned {
			delete(metadata, field)
		}
		for _, field := range []string{"labels", "annotations"} {
			withoutOurs(metadata, field)
		}
	}
	if kind := groupKind(obj); kind.Group == "" && kind.Kind == "Service" {
		withoutAddresses(fields)
	}
	n := normalizer{names: names, uids: uids, generation: obj.GetGeneration()}
	out, _ := n.value("", fields).(map[string]any)
	return out
}

// withoutOurs removes the labels by which Rota delivers objects, since a single member needs none.
func withoutOurs(metadata map[string]any, field string) {
	all, ok := metadata[field].(map[string]any)
	if !ok {
		return
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return strings.HasPrefix(name, names.Prefix+"/") })
	if len(all) == 0 {
		delete(metadata, field)
	}
}

// withoutAddresses removes what the API server allocates to a Service.
func withoutAddresses(service map[string]any) {
	spec, ok := service["spec"].(map[string]any)
	if !ok {
		return
	}
	if spec["clusterIP"] != "None" {
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	delete(spec, "healthCheckNodePort")
	ports, _ := spec["ports"].([]any)
	for _, port := range ports {
		if port, ok := port.(map[string]any); ok {
			delete(port, "nodePort")
		}
	}
}

// normalizer normalizes the values of an object.
type normalizer struct {
	names      replacements
	uids       map[string]string
	generation int64
}

func (n normalizer) value(field string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = n.value(name, inner)
		}
		return v
	case []any:
		for i, inner := range v {
			v[i] = n.value("", inner)
		}
		if slices.Contains([]string{"conditions", "ownerReferences", "finalizers"}, field) {
			slices.SortStableFunc(v, byText)
		}
		return v
	case string:
		return n.text(v)
	case int64:
		if field == "observedGeneration" { // the number of changes is not part of the state
			if v == n.generation {
				return "<the latest>"
			}
			return "<an older one>"
		}
	}
	return v
}

func (n normalizer) text(text string) string {
	if timestamp.MatchString(text) {
		return "<time>"
	}
	text = uuids.ReplaceAllStringFunc(text, func(uid string) string {
		if known, ok := n.uids[uid]; ok {
			return known
		}
		return "<uid>"
	})
	return n.names.replace(text)
}

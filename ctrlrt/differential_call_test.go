package ctrlrt_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
)

// Callers of a read: code outside of reconciles, and reconciles of the world's two controllers.
const (
	outside   = "outside"
	inMaps    = "maps"
	inClasses = "classes"
)

// Readers of a call.
const (
	byClient    = "the client"
	byCache     = "GetCache"
	byAPIReader = "GetAPIReader"
	byLive      = "ctrlrt.Live"
	byShare     = "ctrlrt.Share" // of List only
)

// Forms of the variable of a call.
const (
	typedForm        = "typed"
	unstructuredForm = "unstructured"
	metadataForm     = "metadata"
	kindlessForm     = "kindless" // unstructured, without a kind
)

// Names of options that the comparison knows.
const (
	limitOption = "Limit"
	fieldOption = "FieldSelector"
	rawOption   = "Raw"
)

// readKinds are the kinds of the world: primary, owned, primary and cluster-scoped, and one that no controller has.
var readKinds = map[string]schema.GroupVersionKind{
	"ConfigMap":      corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	"Secret":         corev1.SchemeGroupVersion.WithKind("Secret"),
	"PriorityClass":  schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"),
	"ServiceAccount": corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
}

// readOption is an option of a List with its name.
type readOption struct {
	name, about string
	option      client.ListOption
}

// readCall is a Get or a List.
type readCall struct {
	list       bool
	kind, form string
	from, by   string
	member     int // makes the call where one stands for all
	key        client.ObjectKey
	options    []readOption
	raw        *metav1.GetOptions
	ended      bool // the context has ended
	used       bool // the variable holds another object
	uncopied   bool // UnsafeDisableDeepCopy
}

func (c readCall) String() string {
	var b strings.Builder
	if c.list {
		fmt.Fprintf(&b, "List of %s %s", c.form, c.kind)
		for _, o := range c.options {
			fmt.Fprintf(&b, ", %s %s", o.name, o.about)
		}
	} else {
		fmt.Fprintf(&b, "Get of %s %s %q", c.form, c.kind, c.key)
	}
	fmt.Fprintf(&b, ", from %s by %s", c.from, c.by)
	if c.raw != nil {
		fmt.Fprintf(&b, ", Raw %v", c.raw)
	}
	for name, set := range map[string]bool{"ended context": c.ended, "used variable": c.used, "uncopied": c.uncopied} {
		if set {
			b.WriteString(", " + name)
		}
	}
	return b.String()
}

// plain reports whether no controller shards the kind.
func (c readCall) plain() bool { return c.kind == "ServiceAccount" }

func (c readCall) has(option string) bool {
	return slices.ContainsFunc(c.options, func(o readOption) bool { return o.name == option })
}

func (c readCall) without(option string) readCall {
	c.options = slices.DeleteFunc(slices.Clone(c.options), func(o readOption) bool { return o.name == option })
	return c
}

// effective returns what the options come to; ok is false if they panic.
func (c readCall) effective() (o client.ListOptions, ok bool) {
	defer func() { ok = recover() == nil }()
	o.ApplyOptions(c.listOptions())
	return o, true
}

// live reports whether the caller asks for the API server's answer.
func (c readCall) live() bool { return c.by == byLive || c.by == byAPIReader }

func (c readCall) listOptions() []client.ListOption {
	var out []client.ListOption
	switch c.by {
	case byLive:
		out = append(out, ctrlrt.Live)
	case byShare:
		out = append(out, ctrlrt.Share)
	}
	for _, o := range c.options {
		out = append(out, o.option)
	}
	if c.uncopied {
		out = append(out, client.UnsafeDisableDeepCopy)
	}
	return out
}

func (c readCall) getOptions() []client.GetOption {
	var out []client.GetOption
	if c.by == byLive {
		out = append(out, ctrlrt.Live)
	}
	if c.raw != nil {
		out = append(out, &client.GetOptions{Raw: c.raw.DeepCopy()})
	}
	if c.uncopied {
		out = append(out, client.UnsafeDisableDeepCopy)
	}
	return out
}

// rawOptions are the Raw options of a List. Who uses them may change them.
type rawOptions metav1.ListOptions

// ApplyToList implements client.ListOption.
func (r *rawOptions) ApplyToList(o *client.ListOptions) { o.Raw = (*metav1.ListOptions)(r).DeepCopy() }

// smaller returns the calls that lack one thing of this one.
func (c readCall) smaller() []readCall {
	var out []readCall
	for n := range c.options {
		s := c
		s.options = slices.Delete(slices.Clone(c.options), n, n+1)
		out = append(out, s)
	}
	plainer := []func(*readCall){
		func(c *readCall) { c.ended = false },
		func(c *readCall) { c.used = false },
		func(c *readCall) { c.uncopied = false },
		func(c *readCall) { c.raw = nil },
		func(c *readCall) { c.from = outside },
		func(c *readCall) { c.form = typedForm },
		func(c *readCall) { c.by = byClient },
	}
	for _, change := range plainer {
		s := c
		if change(&s); s.String() != c.String() {
			out = append(out, s)
		}
	}
	return out
}

// object returns the variable of a Get.
func (c readCall) object() client.Object {
	obj := emptyObject(c.kind, c.form)
	if c.used {
		obj.SetName("another")
		obj.SetNamespace("elsewhere")
		obj.SetUID("1")
		obj.SetLabels(map[string]string{"left": "over"})
		obj.SetFinalizers([]string{"left/over"})
	}
	return obj
}

func emptyObject(kind, form string) client.Object {
	gvk := readKinds[kind]
	switch form {
	case kindlessForm:
		return &unstructured.Unstructured{}
	case unstructuredForm:
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		return u
	case metadataForm:
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(gvk)
		return m
	}
	switch kind {
	case "ConfigMap":
		return &corev1.ConfigMap{}
	case "Secret":
		return &corev1.Secret{}
	case "PriorityClass":
		return &schedulingv1.PriorityClass{}
	default:
		return &corev1.ServiceAccount{}
	}
}

// objects returns the variable of a List.
func (c readCall) objects() client.ObjectList {
	list := emptyList(c.kind, c.form)
	if cms, ok := list.(*corev1.ConfigMapList); ok && c.used {
		cms.Items = []corev1.ConfigMap{*configMap("elsewhere", "another", "1")}
	}
	if c.used {
		list.SetResourceVersion("1")
		list.SetContinue("left over")
	}
	return list
}

func emptyList(kind, form string) client.ObjectList {
	gvk := readKinds[kind]
	gvk.Kind += "List"
	switch form {
	case kindlessForm:
		return &unstructured.UnstructuredList{}
	case unstructuredForm:
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(gvk)
		return u
	case metadataForm:
		m := &metav1.PartialObjectMetadataList{}
		m.SetGroupVersionKind(gvk)
		return m
	}
	switch kind {
	case "ConfigMap":
		return &corev1.ConfigMapList{}
	case "Secret":
		return &corev1.SecretList{}
	case "PriorityClass":
		return &schedulingv1.PriorityClassList{}
	default:
		return &corev1.ServiceAccountList{}
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomCall returns a call that may make no sense.
func (w *readWorld) randomCall(r *rand.Rand) readCall {
	c := readCall{
		list: r.IntN(2) == 0,
		kind: pick(r, "ConfigMap", "ConfigMap", "Secret", "Secret", "PriorityClass", "PriorityClass", "ServiceAccount"),
		form: pick(r, typedForm, typedForm, unstructuredForm, metadataForm),
		from: pick(r, outside, inMaps, inClasses), by: byClient, member: r.IntN(worldMembers),
		ended: r.IntN(12) == 0, used: r.IntN(6) == 0, uncopied: r.IntN(8) == 0,
	}
	if r.IntN(50) == 0 {
		c.form = kindlessForm
	}
	if r.IntN(4) == 0 {
		c.by = pick(r, byCache, byAPIReader, byLive, byShare)
	}
	if !c.list {
		c.get(w, r)
		return c
	}
	for _, option := range []func(*rand.Rand) readOption{w.inNamespace, byLabel, w.byField, paged} {
		for r.IntN(3) == 0 {
			c.options = append(c.options, option(r))
		}
	}
	if r.IntN(10) == 0 {
		c.options = append(c.options, pick(r, w.raw(r), w.raw(r), none(r)))
	}
	return c
}

// keptCalls were answered differently once.
func (w *readWorld) keptCalls() []readCall {
	get := readCall{kind: "ConfigMap", form: typedForm, from: outside, by: byClient,
		key: client.ObjectKey{Namespace: w.namespace, Name: w.name(1)}, raw: &metav1.GetOptions{ResourceVersion: "x"}}
	out := []readCall{get}
	nothing := client.MatchingLabelsSelector{Selector: labels.Nothing()}
	for _, option := range []readOption{
		{"MatchingLabelsSelector", "Nothing", nothing},
		{rawOption, "empty", (*rawOptions)(&metav1.ListOptions{})}, // shared by the lists of two namespaces
		{rawOption, "resourceVersion x", (*rawOptions)(&metav1.ListOptions{ResourceVersion: "x"})},
		{"Continue", "x", client.Continue("x")},
		{fieldOption, "unnamed", client.MatchingFields{"": ""}}, // the API server takes its text for everything
	} {
		for _, kind := range []string{"ConfigMap", "Secret", "PriorityClass"} {
			out = append(out, readCall{list: true, kind: kind, form: typedForm, from: outside, by: byClient,
				options: []readOption{option}})
		}
	}
	return out
}

// get makes a call a Get.
func (c *readCall) get(w *readWorld, r *rand.Rand) {
	if c.by == byShare {
		c.by = byClient
	}
	c.key = client.ObjectKey{Namespace: w.namespaceOf(c.kind), Name: w.name(r.IntN(worldObjects + 2))}
	if c.key.Namespace != "" && r.IntN(3) == 0 {
		c.key.Namespace = w.colored
	}
	if r.IntN(4) == 0 {
		c.key.Name = pick(r, "", "a/b", ".", "..", "%", "A_B", strings.Repeat("x", 300), "none")
	}
	if r.IntN(3) == 0 {
		c.key.Namespace = pick(r, "", w.namespace, w.colored, w.beyond, "nowhere", "a/b", "..")
	}
	if r.IntN(10) == 0 {
		c.raw = &metav1.GetOptions{ResourceVersion: pick(r, "", "0", "x")}
	}
}

func (w *readWorld) inNamespace(r *rand.Rand) readOption {
	ns := pick(r, w.namespace, w.namespace, w.colored, w.beyond, "", "nowhere", "a/b", "..")
	return readOption{"InNamespace", fmt.Sprintf("%q", ns), client.InNamespace(ns)}
}

// raw returns options for the API server, which a cache ignores.
func (w *readWorld) raw(r *rand.Rand) readOption {
	o := pick(r, metav1.ListOptions{}, metav1.ListOptions{ResourceVersion: "0"}, metav1.ListOptions{ResourceVersion: "x"},
		metav1.ListOptions{LabelSelector: "color=red"}, metav1.ListOptions{FieldSelector: "metadata.name=" + w.name(1)},
		metav1.ListOptions{Limit: 1}, metav1.ListOptions{Continue: "x"})
	return readOption{rawOption, fmt.Sprintf("%+v", o), (*rawOptions)(&o)}
}

// none returns an option that is nil.
func none(r *rand.Rand) readOption {
	return pick(r, readOption{"nil", "", nil}, readOption{"nil", "of type ListOptions", (*client.ListOptions)(nil)},
		readOption{"nil", "of type MatchingLabels", client.MatchingLabels(nil)},
		readOption{fieldOption, "nil MatchingFields", client.MatchingFields(nil)},
		readOption{"nil", "of type HasLabels", client.HasLabels(nil)})
}

func byLabel(r *rand.Rand) readOption {
	switch r.IntN(6) {
	case 0:
		return readOption{"MatchingLabelsSelector", "Nothing", client.MatchingLabelsSelector{Selector: labels.Nothing()}}
	case 1:
		return readOption{"MatchingLabelsSelector", "nil", client.MatchingLabelsSelector{}}
	case 2:
		s := pick(r, "color", "!color", "color in (red,blue)", "color!=red", "color notin (red)", "")
		parsed, _ := labels.Parse(s)
		return readOption{"MatchingLabelsSelector", fmt.Sprintf("%q", s), client.MatchingLabelsSelector{Selector: parsed}}
	case 3:
		has := client.HasLabels{pick(r, "color", "none", "", "a b", "a/b/c")}
		return readOption{"HasLabels", fmt.Sprintf("%q", has), has}
	default:
		by := client.MatchingLabels{pick(r, "color", "color", "color", "", "a b"): pick(r, "red", "blue", "", "a b", "a/b")}
		return readOption{"MatchingLabels", fmt.Sprintf("%q", by), by}
	}
}

func (w *readWorld) byField(r *rand.Rand) readOption {
	switch r.IntN(5) {
	case 0:
		return readOption{fieldOption, "Nothing", client.MatchingFieldsSelector{Selector: fields.Nothing()}}
	case 1:
		return readOption{fieldOption, "nil", client.MatchingFieldsSelector{}}
	case 2:
		return readOption{fieldOption, "Everything", client.MatchingFieldsSelector{Selector: fields.Everything()}}
	default:
		field := pick(r, colorIndex, colorIndex, "metadata.name", "metadata.namespace", "none", "")
		by := client.MatchingFields{field: pick(r, "red", "blue", "", w.name(1), w.namespace)}
		return readOption{fieldOption, fmt.Sprintf("%q", by), by}
	}
}

func paged(r *rand.Rand) readOption {
	switch r.IntN(4) {
	case 0:
		token := client.Continue(pick(r, "", "x", "continue-not-supported"))
		return readOption{"Continue", fmt.Sprintf("%q", token), token}
	default:
		limit := client.Limit(pick(r, -1, 0, 1, 2, 5, 1000))
		return readOption{limitOption, fmt.Sprint(limit), limit}
	}
}

package labeller_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// The values are in objects of users' clusters: they must never change.
func TestValue(t *testing.T) {
	for _, c := range []struct {
		key             slot.Key
		namespace, name string
		want            string
	}{
		{slot.KeyName, "default", "web", "1957"},
		{slot.KeyName, "", "web", "3898"},
		{slot.KeyNamespace, "default", "web", "3249"},
		{slot.KeyNamespace, "", "web", "3898"},
	} {
		got := labeller.Value(c.key, c.namespace, c.name)
		if got != c.want {
			t.Errorf("%v of %q/%q: %s, want %s", c.key, c.namespace, c.name, got, c.want)
		}
		// The slot of a rota is the value's upper bits.
		hash := c.key.Hash(c.namespace, c.name, "")
		if s := slot.Count(slot.MaxCount).Of(hash); got != s.String() {
			t.Errorf("%s, but slot %v of %d", got, s, slot.MaxCount)
		}
	}
}

func TestSelectors(t *testing.T) {
	short, err := labels.Parse(labeller.Missing(label))
	require.NoError(t, err)
	long, err := labels.Parse(labeller.Malformed(label))
	require.NoError(t, err)
	for value, wrong := range map[string]bool{"0": false, "7": false, "4095": false, "4096": true, "007": true, "x": true,
		"": true} {
		set := labels.Set{label: value}
		if long.Matches(set) != wrong || short.Matches(set) {
			t.Errorf("value %q: %v, %v", value, long.Matches(set), short.Matches(set))
		}
	}
	if none := (labels.Set{"a": "b"}); !short.Matches(none) || !long.Matches(none) {
		t.Error("an object without the label is not selected")
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	good := []schema.GroupVersionResource{configMaps}
	for _, c := range []struct {
		opts labeller.Options
		want string
	}{
		{labeller.Options{}, "Resources is empty"},
		{labeller.Options{Resources: []schema.GroupVersionResource{{Resource: "pods"}}}, "give its version"},
		{labeller.Options{Resources: good, Key: slot.KeyUID}, "Name and Namespace only"},
		{labeller.Options{Resources: good}, "Options.Label is empty"},
		{labeller.Options{Resources: good, Label: "rota.dev/a/b"}, "not the name of a label"},
		{labeller.Options{Resources: good, Label: label, QPS: -1}, "negative"},
	} {
		if _, err := labeller.New(&rest.Config{Host: "http://localhost"}, c.opts); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.opts, err, c.want)
		}
	}
}

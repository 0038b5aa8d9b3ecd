package keeper

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// scopes maps the kinds of these tests.
func scopes() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}})
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, meta.RESTScopeRoot)
	return m
}

func child(owner metav1.OwnerReference) *metav1.PartialObjectMetadata {
	c := object("9")
	c.Name, c.OwnerReferences = "child", []metav1.OwnerReference{owner}
	return c
}

// TestOwns: when a child changes, the object that controls it is handed out, if its slot is here.
func TestOwns(t *testing.T) {
	s := &server{list: fine, children: &server{list: fine}}
	opened(t, s, false, func(t *testing.T, d *Dispatcher) {
		w := <-s.children.watches
		controlled := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "b", UID: "1", Controller: ptr.To(true)}
		for name, event := range map[string]func(){
			"created": func() { w.Add(child(controlled)) },
			"changed": func() { w.Modify(child(controlled)) },
			"deleted": func() { w.Delete(child(controlled)) },
		} {
			event()
			got := take(t, d, time.Minute)
			if len(got) != 1 || got[0].Key != (queue.Key{Kind: "Pod", Namespace: "a", Name: "b"}) || got[0].Gone ||
				got[0].UID != "1" || got[0].Class != queue.Changed {
				t.Fatalf("a child was %s: takes %+v", name, got)
			}
			require.NoError(t, d.Done(got[0].ID, "w", queue.Result{}))
		}
		for name, change := range map[string]func(*metav1.OwnerReference){
			"not controlled":        func(o *metav1.OwnerReference) { o.Controller = nil },
			"of another kind":       func(o *metav1.OwnerReference) { o.Kind = "Deployment" },
			"of another group":      func(o *metav1.OwnerReference) { o.APIVersion = "x.io/v1" },
			"of an invalid version": func(o *metav1.OwnerReference) { o.APIVersion = "a/b/c" },
		} {
			other := controlled
			change(&other)
			w.Add(child(other))
			none(t, d, name)
		}
		(<-s.watches).Delete(object("8"))
		synctest.Wait()
		w.Delete(child(controlled))
		synctest.Wait()
		finish(t, d, true) // a child that goes after its owner does not bring that back
		d.Shut(all)
		w.Add(child(controlled))
		synctest.Wait()
		d.Open(all, 2)
		none(t, d, "its slot was another member's")
	})
	o := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "2", Controller: ptr.To(true)}
	if key, _, ok := ownerOf(schema.GroupKind{Kind: "Node"}, child(o), scopes()); !ok || key.Namespace != "" {
		t.Errorf("%+v, %v, want an owner without a namespace", key, ok)
	}
}

// TestResync: all objects are handed out from time to time.
func TestResync(t *testing.T) {
	inTimeWith(t, Options{Resync: time.Hour}, map[string]*server{"Pod": {list: fine}}, func(t *testing.T, d *Dispatcher) {
		d.SetDeadline(24 * time.Hour)
		require.NoError(t, d.Load(t.Context(), all, true, nil))
		d.Open(all, 1)
		for range 3 {
			finish(t, d, false)
			none(t, d, "it is done")
			time.Sleep(time.Hour)
		}
	})
}

// TestRefuses: a child does not tell the labels of its owner, and with keys by UID two objects of one name may be in two
// slots, so that a worker would have both under one key.
func TestRefuses(t *testing.T) {
	pods := schema.GroupKind{Kind: "Pod"}
	for want, c := range map[string]struct {
		key  slot.Key
		kind Kind
	}{
		"kind Pod: owns and selector": {slot.KeyName, Kind{Kind: pods, Selector: "a=b", Owns: []schema.GroupKind{pods}}},
		"kind Pod: selector":          {slot.KeyName, Kind{Kind: pods, Selector: "!!"}},
		"key UID":                     {slot.KeyUID, Kind{Kind: pods}},
	} {
		_, err := NewOf(adapter.Parts{Slots: 16, Key: c.key}, Options{Kinds: []Kind{c.kind}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

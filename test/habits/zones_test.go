package habits

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// publisher keeps one Secret, the zone, with an entry for each item. It looks at all of them at once, some time after
// one has changed.
type publisher struct {
	all   manager.Manager // its cache has all items
	key   types.NamespacedName
	label string
}

// mark is the prefix of the mark that an entry is the publisher's own. It leaves others alone, but for those of items,
// which it adopts.
const mark = "mark."

// Start implements manager.Runnable.
func (p *publisher) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	note := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	informer, err := p.all.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
	if err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) }, DeleteFunc: note,
	})
	if err != nil {
		return err
	}
	defer informer.RemoveEventHandler(registration)
	note(nil) // there may be entries of items that are gone
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond): // more will have changed
		case <-ctx.Done():
			return nil
		}
		if err := p.publish(ctx); err != nil {
			p.all.GetLogger().Info("published later", "reason", err.Error())
			note(nil)
		}
	}
}

func (p *publisher) publish(ctx context.Context) error {
	var zone corev1.Secret
	if err := p.all.GetClient().Get(ctx, p.key, &zone); err != nil {
		return err
	}
	var items corev1.ConfigMapList
	if err := p.all.GetClient().List(ctx, &items, client.InNamespace(p.key.Namespace),
		client.MatchingLabels{Label: p.label}); err != nil {
		return err
	}
	want := maps.Clone(zone.Data)
	live := map[string]bool{}
	for i := range items.Items {
		name, endpoint := items.Items[i].Name, items.Items[i].Annotations["endpoint"]
		live[name] = true
		if endpoint != "" {
			want[name], want[mark+name] = []byte(endpoint), []byte("yes")
		}
	}
	for key := range zone.Data {
		name, own := strings.CutPrefix(key, mark)
		if !own || live[name] {
			continue
		}
		key := types.NamespacedName{Namespace: p.key.Namespace, Name: name}
		// The cache of one that has just begun may not show what another one saw. One that is a share never will.
		if err := p.all.GetAPIReader().Get(ctx, key, &corev1.ConfigMap{}); err == nil {
			return fmt.Errorf("%s is there, and the cache does not show it", name)
		} else if !apierrors.IsNotFound(err) {
			return err
		}
		delete(want, name)
		delete(want, mark+name)
	}
	if maps.EqualFunc(want, zone.Data, bytes.Equal) {
		return nil
	}
	zone.Data = want
	return p.all.GetClient().Update(ctx, &zone)
}

// zones has one controller say what each item's entry is, and a publisher write all of them into one object, as
// operators of DNS zones and of scrape configurations do. An entry whose item is gone is an orphan, and deleted. Items
// have no finalizers: those that go while nobody is there are noticed by what is left of them.
func zones() Habit {
	const label, zone, foreign, byHand = "endpoints", "zone", "foreign", "by hand"
	h := Habit{Name: "zones", label: label}
	h.Build = func(p *Process) error {
		c := p.GetClient()
		all, err := p.Whole()
		if err != nil {
			return err
		}
		err = p.AddDuty("publisher", &publisher{
			all: all, key: types.NamespacedName{Namespace: p.Namespace, Name: zone}, label: label,
		})
		if err != nil {
			return err
		}
		_, err = p.items(kind{label: label}, func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
			return ctrl.Result{}, Note(ctx, c, item, "endpoint", item.Data[value])
		})
		return err
	}
	// Some items have an entry before, which somebody made by hand.
	h.Create = func(u User, i int) error {
		if i == 0 {
			made := newSecret(u.Namespace, label, zone)
			made.Data = map[string][]byte{foreign: []byte(byHand)}
			if err := u.Create(u.Context, made); err != nil {
				return err
			}
		} else if i%4 == 0 {
			entry := fmt.Sprintf(`{"stringData":{%q:%q}}`, itemName(i), byHand)
			if err := u.Patch(u.Context, newSecret(u.Namespace, label, zone),
				client.RawPatch(types.MergePatchType, []byte(entry))); err != nil {
				return err
			}
		}
		return u.Create(u.Context, newItem(u.Namespace, label, i))
	}
	h.Wrong = func(u User, items map[int]int) (string, error) {
		secrets, err := u.secrets(label)
		if err != nil {
			return "", err
		}
		got, want := map[string]string{}, map[string]string{foreign: byHand}
		for i, version := range items {
			want[itemName(i)], want[mark+itemName(i)] = fmt.Sprint(version), "yes"
		}
		for key, text := range secrets[zone].Data {
			if want[key] == "" && string(text) == byHand {
				continue // its item went before the publisher saw it
			}
			got[key] = string(text)
		}
		if !maps.Equal(got, want) {
			return fmt.Sprintf("the zone has %v, want %v", got, want), nil
		}
		return "", nil
	}
	return h
}

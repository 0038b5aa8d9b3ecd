package rotatest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// guard refuses writes, by members and by the test, of objects that existed before the run: the next run would find
// them changed, and they may belong to the API server. Namespaces are allowed, because they are restored.
type guard struct {
	dynamic dynamic.Interface
	record  *record
	// begun is when the first run began, on the API server's clock. Objects that are not newer existed before.
	begun time.Time

	mu      sync.Mutex
	refused []string
}

var errThereBefore = errors.New("rotatest refused this write, since the object was there before the run")

// clock returns the API server's time once that second is over, so objects created later have a later
// creationTimestamp.
func (k *kit) clock(ctx context.Context) (time.Time, error) {
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: rotaName, GenerateName: "clock-"}}
	if err := k.own.Create(ctx, probe, client.DryRunAll); err != nil {
		return time.Time{}, fmt.Errorf("ask the API server for its time by a dry run: %w", err)
	}
	return probe.CreationTimestamp.Time, sleep(ctx, time.Second)
}

// check returns an error for a write that must not be sent. It asks the API server only about objects that the run did
// not create.
func (g *guard) check(req *http.Request, w write) error {
	restored := isNoise(w.Resource) || w.Resource.GroupResource() == namespaces.GroupResource()
	creates := w.verb == "create" && w.Subresource == "" // does not write an existing object
	if restored || creates || g.record.made(w.place()) {
		return nil
	}
	targets, err := g.targets(req, w)
	if err != nil {
		return err
	}
	for _, obj := range targets {
		if since := obj.GetCreationTimestamp(); since.After(g.begun) {
			continue
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if text := fmt.Sprintf("%s: %s", nameOf(obj), w); !slices.Contains(g.refused, text) {
			g.refused = append(g.refused, text)
		}
		return fmt.Errorf("%w: %s", errThereBefore, nameOf(obj))
	}
	return nil
}

// targets returns the existing objects that a write changes.
func (g *guard) targets(req *http.Request, w write) ([]*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(req.Context(), answerTime)
	defer cancel()
	api := g.dynamic.Resource(w.Resource).Namespace(w.Name.Namespace)
	if w.Name.Name != "" {
		obj, err := api.Get(ctx, w.Name.Name, metav1.GetOptions{})
		if err != nil {
			return nil, readable(err)
		}
		return []*unstructured.Unstructured{obj}, nil
	}
	query := req.URL.Query() // it deletes a collection
	list, err := api.List(ctx, metav1.ListOptions{
		LabelSelector: query.Get("labelSelector"), FieldSelector: query.Get("fieldSelector"),
	})
	if err != nil {
		return nil, readable(err)
	}
	all := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// readable returns nil for objects that do not exist or cannot be read, which are not compared either.
func readable(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return fmt.Errorf("rotatest looks whether the object was there before: %w", err)
}

// err returns an error that lists the refused writes.
func (g *guard) err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.refused) == 0 {
		return nil
	}
	texts := slices.Sorted(slices.Values(g.refused))
	return fmt.Errorf("these objects were there before, and writes of them were refused: the next run would not find "+
		"them as they were. Leave them out, such as by a predicate, or delete them before and create them in "+
		"Options.Objects or Options.Change:\n%s", indent(strings.Join(texts, "\n")))
}

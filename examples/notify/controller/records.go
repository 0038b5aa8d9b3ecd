package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// RecordsLabel on a ConfigMap names the notifier whose record it is. Nothing is told of such ConfigMaps.
	RecordsLabel = "notify.example.com/records-of"
	// objectAnnotation names the object: its kind, a space, and its key.
	objectAnnotation = "notify.example.com/object"
	// waitingAnnotation names the destinations that are still to be told of something.
	waitingAnnotation = "notify.example.com/waiting"
	// failingAnnotation says since when the object has not been in order. It is there if it fails.
	failingAnnotation = "notify.example.com/failing-since"
	// dataKey of a record's ConfigMap has the record.
	dataKey = "record"
)

// Records are the ConfigMaps that remember what was told, one for each object, in the notifier's own namespace.
//
// What counts is what a read of the API server returns. The informer of all records only says which ones to look at: it
// holds metadata, and may be behind.
type Records struct {
	client, plain   kubernetes.Interface
	namespace, name string
	hints           cache.SharedIndexInformer
}

// OpenRecords returns the records of the notifier of that name. Workers read and write with client. All else goes
// through clients made of cfg.
func OpenRecords(cfg *rest.Config, client kubernetes.Interface, namespace, name string) (*Records, error) {
	if namespace == "" {
		return nil, errors.New("it is not known in which namespace to remember what was told: set POD_NAMESPACE, " +
			"through the downward API in a Pod")
	}
	plain, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	metadatas, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	ours := func(o *metav1.ListOptions) { o.LabelSelector = RecordsLabel + "=" + name }
	informer := metadatainformer.NewFilteredMetadataInformer(metadatas, resource, namespace, 0, cache.Indexers{}, ours)
	return &Records{client: client, plain: plain, namespace: namespace, name: name, hints: informer.Informer()}, nil
}

// Namespace is the notifier's own.
func (r *Records) Namespace() string { return r.namespace }

// ConfigMaps is the client of that namespace with which workers write.
func (r *Records) ConfigMaps() corev1client.ConfigMapInterface {
	return r.client.CoreV1().ConfigMaps(r.namespace)
}

// stored is a record and the ConfigMap that it is in; both are nil if there is none.
type stored struct {
	record *record
	in     *corev1.ConfigMap
}

// nameOf returns the name of an object's record. It does not depend on the UID, so that a namesake finds it.
func (r *Records) nameOf(kind Kind, key cache.ObjectName) string {
	sum := sha256.Sum256([]byte(kind.String() + " " + key.String()))
	return r.name + "-" + hex.EncodeToString(sum[:16])
}

// get reads an object's record.
func (r *Records) get(ctx context.Context, kind Kind, key cache.ObjectName) (stored, error) {
	cm, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(ctx, r.nameOf(kind, key), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return stored{}, nil
	}
	if err != nil {
		return stored{}, fmt.Errorf("read the record of %s %s: %w", kind, key, err)
	}
	rec, err := decode(cm.Data[dataKey])
	if err != nil {
		return stored{}, fmt.Errorf("configmap %s/%s: it has no record of %s %s: %w: delete it, and the object is new to "+
			"the notifier", cm.Namespace, cm.Name, kind, key, err)
	}
	return stored{rec, cm}, nil
}

// put writes a record in place of the one that was read, or deletes that one if rec is nil. It fails if somebody else
// wrote meanwhile.
func (r *Records) put(ctx context.Context, kind Kind, key cache.ObjectName, old stored, rec *record) (stored, error) {
	api := r.client.CoreV1().ConfigMaps(r.namespace)
	failed := func(err error) (stored, error) {
		return stored{}, fmt.Errorf("write the record of %s %s: %w", kind, key, err)
	}
	if rec == nil {
		err := api.Delete(ctx, old.in.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &old.in.UID, ResourceVersion: &old.in.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return failed(err)
		}
		return stored{}, nil
	}
	text, err := rec.encode()
	if err != nil {
		return failed(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: r.nameOf(kind, key)}}
	if old.in != nil {
		cm = old.in.DeepCopy()
	}
	cm.Labels = map[string]string{RecordsLabel: r.name}
	cm.Annotations = map[string]string{objectAnnotation: kind.String() + " " + key.String()}
	if waiting := rec.waiting(); len(waiting) > 0 {
		cm.Annotations[waitingAnnotation] = strings.Join(waiting, ",")
	}
	if !rec.FailingSince.IsZero() {
		cm.Annotations[failingAnnotation] = rec.FailingSince.Format(time.RFC3339)
	}
	cm.Data = map[string]string{dataKey: text}
	if old.in == nil {
		cm, err = api.Create(ctx, cm, metav1.CreateOptions{})
	} else {
		cm, err = api.Update(ctx, cm, metav1.UpdateOptions{})
	}
	if err != nil {
		return failed(err)
	}
	return stored{rec, cm}, nil
}

// hint is what the informer tells of a record.
type hint struct {
	kind    string
	key     cache.ObjectName
	waiting []string
}

// all returns hints of all records that were not written just now.
func (r *Records) all() []hint {
	var out []hint
	for _, obj := range r.hints.GetStore().List() {
		cm := obj.(*metav1.PartialObjectMetadata)
		kind, name, _ := strings.Cut(cm.Annotations[objectAnnotation], " ")
		key, err := cache.ParseObjectName(name)
		if err != nil || kind == "" {
			continue // not written by a notifier
		}
		h := hint{kind: kind, key: key}
		if waiting := cm.Annotations[waitingAnnotation]; waiting != "" {
			h.waiting = strings.Split(waiting, ",")
		}
		out = append(out, h)
	}
	return out
}

// failingSince returns since when an object that fails has not been in order. It is zero if no notice told that it
// fails.
func (r *Records) failingSince(kind Kind, key cache.ObjectName) time.Time {
	name := cache.NewObjectName(r.namespace, r.nameOf(kind, key)).String()
	obj, exists, err := r.hints.GetStore().GetByKey(name)
	if err != nil || !exists {
		return time.Time{}
	}
	since, err := time.Parse(time.RFC3339, obj.(*metav1.PartialObjectMetadata).Annotations[failingAnnotation])
	if err != nil {
		return time.Time{} // it has none
	}
	return since
}

// since returns when the kind was first followed: when a marker of it was made. The clock is the API server's, as with
// the objects.
func (r *Records) since(ctx context.Context, kind Kind) (time.Time, error) {
	api := r.plain.CoreV1().ConfigMaps(r.namespace)
	marker := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: r.name + "-since-" + strings.ToLower(kind.String())},
		Data:       map[string]string{"about": "Creations of " + kind.String() + " before this ConfigMap's are not told."},
	}
	cm, err := api.Get(ctx, marker.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		cm, err = api.Create(ctx, marker, metav1.CreateOptions{})
	}
	if apierrors.IsAlreadyExists(err) {
		cm, err = api.Get(ctx, marker.Name, metav1.GetOptions{})
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("configmap %s/%s, which says since when %s is followed: %w",
			r.namespace, marker.Name, kind, err)
	}
	return cm.CreationTimestamp.Time, nil
}

var waitingObjects = prometheus.NewDesc("notify_waiting_objects",
	"Objects of all replicas with notices that the destination is still to be told.", []string{"destination"}, nil)

var _ prometheus.Collector = (*Records)(nil)

// Describe implements prometheus.Collector.
func (r *Records) Describe(to chan<- *prometheus.Desc) { to <- waitingObjects }

// Collect implements prometheus.Collector.
func (r *Records) Collect(to chan<- prometheus.Metric) {
	count := map[string]float64{}
	for _, h := range r.all() {
		for _, name := range h.waiting {
			count[name]++
		}
	}
	for name, n := range count {
		to <- prometheus.MustNewConstMetric(waitingObjects, prometheus.GaugeValue, n, name)
	}
}

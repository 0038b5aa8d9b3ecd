package store

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/permission"
)

const configMaps = "configmaps"

func (k *Kubernetes) configMap(verb string) permission.Error {
	return permission.Error{Namespace: k.opts.Namespace, Resource: configMaps, Verb: verb, Name: k.opts.Name}
}

// ReadTable implements Store.
func (k *Kubernetes) ReadTable(ctx context.Context) (member.Snapshot, error) {
	var cm corev1.ConfigMap
	req := k.calls.core.Get().Namespace(k.opts.Namespace).Resource(configMaps).Name(k.opts.Name)
	err := k.get(ctx, req, &cm, k.configMap("get"))
	switch {
	case notFound(err):
		return member.Snapshot{}, nil
	case err != nil:
		return member.Snapshot{}, err
	}
	return k.seen(&cm), nil
}

// CreateTable implements Store.
func (k *Kubernetes) CreateTable(ctx context.Context, t *table.Table, timeout time.Duration,
) (member.Snapshot, member.Outcome, error) {
	if err := Writable(t); err != nil {
		return member.Snapshot{}, member.OutcomeFailed, err
	}
	cm := k.newConfigMap()
	cm.Data = table.Encode(t)
	var out corev1.ConfigMap
	want := k.configMap("create")
	want.Name = "" // RBAC cannot limit create to a name
	req := k.calls.core.Post().Namespace(k.opts.Namespace).Resource(configMaps).Body(cm)
	o, err := k.write(ctx, timeout, req, &out, want)
	switch o { //nolint:exhaustive // the other outcomes stay as they are
	case member.OutcomeDone:
		return k.seen(&out), o, nil
	case member.OutcomeMissing: // the namespace is missing
		o = member.OutcomeFailed
	}
	return member.Snapshot{}, o, err
}

// SwapTable implements Store. It keeps labels and annotations that others put on the ConfigMap if this store has seen
// the version that it replaces.
func (k *Kubernetes) SwapTable(ctx context.Context, t *table.Table, uid, version string, timeout time.Duration,
) (member.Snapshot, member.Outcome, error) {
	if err := Writable(t); err != nil {
		return member.Snapshot{}, member.OutcomeFailed, err
	}
	if err := Conditional(uid, version); err != nil {
		return member.Snapshot{}, member.OutcomeFailed, err
	}
	cm := k.newConfigMap()
	if last, ok := k.recall(configMaps).(*corev1.ConfigMap); ok && last.ResourceVersion == version {
		cm = last.DeepCopy()
		setLabel(cm, k.opts.Name)
	}
	cm.UID, cm.ResourceVersion, cm.Data = types.UID(uid), version, table.Encode(t)
	var out corev1.ConfigMap
	req := k.calls.core.Put().Namespace(k.opts.Namespace).Resource(configMaps).Name(k.opts.Name).Body(cm)
	o, err := k.write(ctx, timeout, req, &out, k.configMap("update"))
	if o != member.OutcomeDone {
		return member.Snapshot{}, o, err
	}
	return k.seen(&out), o, nil
}

func (k *Kubernetes) newConfigMap() *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: k.opts.Name, Namespace: k.opts.Namespace}}
	setLabel(cm, k.opts.Name)
	return cm
}

// seen records the ConfigMap and decodes the table in it.
func (k *Kubernetes) seen(cm *corev1.ConfigMap) member.Snapshot {
	k.remember(configMaps, cm)
	s := member.Snapshot{UID: string(cm.UID), Version: cm.ResourceVersion}
	s.Table, s.Err = table.Decode(cm.Data)
	return s
}

func setLabel(obj metav1.Object, rota string) {
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[names.LabelRota] = rota
	obj.SetLabels(labels)
}

package clientgo

import (
	"reflect"

	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

// FactoryOptions returns what a SharedInformerFactory made by informer-gen was built with: the namespace of
// WithNamespace, or "", and whether WithTweakListOptions was used. For other factories both are zero.
//
// Unnecessary once generated factories have methods for their fields namespace and tweakListOptions.
func FactoryOptions(factory any) (namespace string, tweaked bool) {
	fields := reflect.Indirect(reflect.ValueOf(factory))
	if fields.Kind() != reflect.Struct {
		return "", false
	}
	if f := fields.FieldByName("namespace"); f.Kind() == reflect.String {
		namespace = f.String()
	}
	f := fields.FieldByName("tweakListOptions")
	return namespace, f.Kind() == reflect.Func && !f.IsNil()
}

// ClientNamespace returns the namespace of a client made by client-gen, real or fake. ok is false for other clients.
//
// Unnecessary once generated fake clients have the method GetNamespace of the real ones.
func ClientNamespace(client any) (namespace string, ok bool) {
	switch c := client.(type) {
	case interface{ GetNamespace() string }:
		return c.GetNamespace(), true
	case interface{ Namespace() string }: // a fake
		return c.Namespace(), true
	}
	return "", false
}

// AppliedMeta returns the metadata in an apply configuration made by applyconfiguration-gen, or nil if it has none.
//
// Unnecessary once generated apply configurations have a method that returns their embedded
// ObjectMetaApplyConfiguration.
func AppliedMeta(configuration any) *metav1ac.ObjectMetaApplyConfiguration {
	v := reflect.ValueOf(configuration)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	field := v.Elem().FieldByName("ObjectMetaApplyConfiguration")
	if !field.IsValid() {
		return nil
	}
	meta, _ := field.Interface().(*metav1ac.ObjectMetaApplyConfiguration)
	return meta
}

package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var crdResource = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

const crdTimeout = 30 * time.Second

// InstallCRDs applies CustomResourceDefinitions, each manifest being one or more of them in YAML or JSON, and waits
// until every API server serves them.
func (c *ControlPlane) InstallCRDs(ctx context.Context, manifests ...[]byte) error {
	for i := range c.info.APIServers {
		if err := InstallCRDs(ctx, c.ConfigFor(i), manifests...); err != nil {
			return err
		}
	}
	return nil
}

// InstallCRDs applies CustomResourceDefinitions, each manifest being one or more of them in YAML or JSON, and waits
// until the API server of the given configuration serves them, at most 30 seconds each. Objects created within the
// first two seconds after that take two seconds each: the API server sleeps then.
func InstallCRDs(ctx context.Context, config *rest.Config, manifests ...[]byte) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	var crds []*unstructured.Unstructured
	for _, m := range manifests {
		parsed, err := parseCRDs(m)
		if err != nil {
			return err
		}
		crds = append(crds, parsed...)
	}
	for _, crd := range crds {
		o := metav1.ApplyOptions{FieldManager: "rota-controlplane", Force: true}
		if _, err := client.Resource(crdResource).Apply(ctx, crd.GetName(), crd, o); err != nil {
			return fmt.Errorf("apply CRD %s: %w", crd.GetName(), err)
		}
	}
	for _, crd := range crds {
		if err := waitServed(ctx, client, crd); err != nil {
			return fmt.Errorf("CRD %s is applied but not served: %w", crd.GetName(), err)
		}
	}
	return nil
}

func parseCRDs(manifest []byte) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return crds, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a CRD manifest: %w", err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &crd.Object); err != nil {
			return nil, fmt.Errorf("parse a CRD manifest: %w", err)
		}
		if len(crd.Object) == 0 {
			continue // only comments
		}
		if crd.GetKind() != "CustomResourceDefinition" {
			return nil, fmt.Errorf("a CRD manifest holds a %s %q", crd.GetKind(), crd.GetName())
		}
		crds = append(crds, crd)
	}
}

// waitServed polls until the CRD is Established and each of its versions can be listed: the handler comes up a moment
// after the condition.
func waitServed(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeoutCause(ctx, crdTimeout, errors.New("it took more than "+crdTimeout.String()))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := served(ctx, client, crd)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func served(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	now, err := client.Resource(crdResource).Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !established(now) {
		return errors.New("it is not Established: see its status conditions")
	}
	group, _, _ := unstructured.NestedString(now.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(now.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(now.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if on, _, _ := unstructured.NestedBool(version, "served"); !on {
			continue
		}
		name, _, _ := unstructured.NestedString(version, "name")
		gvr := schema.GroupVersionResource{Group: group, Version: name, Resource: plural}
		if _, err := client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
	}
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

package main

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/examples/internal/replica"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// world is the Websites of a test, and what is right about them.
type world struct {
	client.Client
	*testing.T
	namespace, pages string
	// secrets is the Secret of each Website, "" for none; keys is the private key in each Secret there is.
	secrets, keys map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := controlplane.For(t)
	require.NoError(t, plane.InstallCRDs(t.Context(), config.CRD))
	scheme := runtime.NewScheme()
	check(clientgoscheme.AddToScheme(scheme))
	check(webv1.AddToScheme(scheme))
	return &world{
		Client: must(client.New(plane.Config(), client.Options{Scheme: scheme})), T: t, namespace: controlplane.Namespace(t),
		pages: t.TempDir(), secrets: map[string]string{}, keys: map[string]string{},
	}
}

func (w *world) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

func (w *world) do(err error) {
	w.Helper()
	require.NoError(w, err)
}

func (w *world) addSite(name, secret string) {
	w.Helper()
	w.secrets[name] = secret
	w.do(w.Create(w.Context(), &webv1.Website{ObjectMeta: w.named(name), Spec: webv1.WebsiteSpec{
		Title: name, SecretName: secret, Protected: len(w.secrets)%2 == 0, Replicas: ptr.To[int32](2),
	}}))
}

// setSecret creates or changes a Secret.
func (w *world) setSecret(name, key string) {
	w.Helper()
	secret := &corev1.Secret{ObjectMeta: w.named(name), Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte("certificate"), corev1.TLSPrivateKeyKey: []byte(key)}}
	if w.keys[name] == "" {
		w.do(w.Create(w.Context(), secret))
	} else {
		w.do(w.Update(w.Context(), secret))
	}
	w.keys[name] = key
}

// wrong says what is wrong with the Websites' children and conditions. Deployments whose Secrets have the same key must have
// the same checksum, and others another one.
func (w *world) wrong() string {
	w.Helper()
	checksums := map[string]string{} // by key
	for name, secret := range w.secrets {
		var site webv1.Website
		var deployment appsv1.Deployment
		var service corev1.Service
		var page corev1.ConfigMap
		w.do(w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &site))
		found := meta.FindStatusCondition(site.Status.Conditions, webv1.ConditionCertificateFound)
		switch {
		case site.Status.ObservedGeneration != site.Generation:
			return name + " is not reconciled"
		case !files(w.T, w.pages)[w.namespace+"_"+name+".html"]:
			return name + " has no file"
		case (found != nil) != (secret != "") || found != nil && (found.Status == metav1.ConditionTrue) != (w.keys[secret] != ""):
			return fmt.Sprintf("%s with Secret %q has the condition %+v", name, secret, found)
		}
		children := map[client.Object]string{&page: controller.PageName(name)}
		if secret == "" || w.keys[secret] != "" {
			children[&deployment], children[&service] = name, name
		}
		for child, childName := range children {
			if err := w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: childName}, child); err != nil {
				return err.Error()
			}
			if !metav1.IsControlledBy(child, &site) {
				return fmt.Sprintf("%T %s is not controlled by its Website", child, childName)
			}
		}
		if page.Data[controller.PageFile] == "" || len(page.Data) != 1 {
			return fmt.Sprintf("configmap of %s: %v", name, page.Data)
		}
		if children[&service] == "" {
			continue
		}
		port, checksum := int32(80), deployment.Spec.Template.Annotations[controller.CertificateAnnotation]
		if secret != "" {
			port = 443
		}
		if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != port || service.Spec.Ports[0].TargetPort.StrVal != "web" {
			return fmt.Sprintf("service %s: %+v", name, service.Spec.Ports)
		}
		if *deployment.Spec.Replicas != 2 || (checksum != "") != (secret != "") || len(deployment.Spec.Template.Spec.Containers) != 1 {
			return fmt.Sprintf("deployment %s: %+v", name, deployment.Spec)
		}
		if want, ok := checksums[w.keys[secret]]; ok && checksum != want {
			return fmt.Sprintf("deployment %s has checksum %s, another one of the same Secret %s", name, checksum, want)
		}
		checksums[w.keys[secret]] = checksum
	}
	seen := map[string]string{}
	for key, checksum := range checksums {
		if other, ok := seen[checksum]; ok {
			return fmt.Sprintf("the keys %q and %q have the checksum %s", key, other, checksum)
		}
		seen[checksum] = key
	}
	return ""
}

// owners waits until these replicas share the slots and nothing moves, and returns whose each Website is.
func (w *world) owners(pods ...string) map[string]string {
	w.Helper()
	out := map[string]string{}
	w.eventually(60*time.Second, func() string {
		var cm corev1.ConfigMap
		if err := w.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "website"}, &cm); err != nil {
			return err.Error()
		}
		tab, err := table.Decode(cm.Data)
		w.do(err)
		for _, run := range tab.Runs {
			if run.Owner == "" || run.Next != "" || run.Unsettled {
				return "slots move"
			}
		}
		if len(tab.Members) != len(pods) || len(tab.Counts()) != len(pods) {
			return fmt.Sprintf("members with slots: %v, want %v", tab.Counts(), pods)
		}
		for name := range w.secrets {
			m, _ := tab.Member(tab.At(tab.Slots.Of(slot.KeyName.Hash(w.namespace, name, ""))).Owner)
			out[name] = m.Pod
		}
		return ""
	})
	return out
}

// disturb deletes and edits children, each kind of some Websites.
func (w *world) disturb() {
	w.Helper()
	edit := func(obj client.Object, patch string) {
		w.Helper()
		w.do(w.Patch(w.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	i := 0
	for name := range w.secrets {
		deployment, service := &appsv1.Deployment{ObjectMeta: w.named(name)}, &corev1.Service{ObjectMeta: w.named(name)}
		page := &corev1.ConfigMap{ObjectMeta: w.named(controller.PageName(name))}
		switch i++; i % 7 {
		case 0:
			w.do(w.Delete(w.Context(), deployment))
		case 1:
			w.do(w.Delete(w.Context(), service))
		case 2:
			w.do(w.Delete(w.Context(), page))
		case 3:
			edit(deployment, `{"spec":{"replicas":7,"template":{"metadata":{"annotations":null},"spec":{"containers":[{"name":"web","image":"other"}]}}}}`)
		case 4:
			edit(service, `{"spec":{"ports":[{"port":7,"targetPort":7}]}}`)
		case 5:
			edit(page, `{"data":{"index.html":"defaced","more":"x"}}`)
		case 6: // orphans are adopted again
			for _, child := range []client.Object{deployment, service, page} {
				edit(child, `{"metadata":{"ownerReferences":null}}`)
			}
		}
	}
}

func (w *world) eventually(limit time.Duration, check func() string) {
	w.Helper()
	problem := "not looked yet"
	for deadline := time.Now().Add(limit); problem != ""; time.Sleep(50 * time.Millisecond) {
		if problem = check(); problem != "" && time.Now().After(deadline) {
			w.Fatalf("after %v: %s", limit, problem)
		}
	}
}

// Three replicas share Websites with children: what happens to a child or to a Secret is put right by the one whose Website
// it is, and by nobody else.
func TestThreeReplicas(t *testing.T) {
	plane := controlplane.For(t)
	w := newWorld(t)
	w.setSecret("cert-a", "a1")
	w.setSecret("cert-b", "b1")
	for i := range 42 {
		w.addSite(fmt.Sprintf("site-%02d", i), []string{"cert-a", "cert-b", ""}[i%3])
	}
	replicas := map[string]*replica.Replica{}
	for _, pod := range []string{"replica-a", "replica-b", "replica-c"} {
		replicas[pod] = start(t, w.namespace, w.pages, pod)
	}
	owners := w.owners("replica-a", "replica-b", "replica-c")
	w.eventually(30*time.Second, w.wrong)

	begin := time.Now()
	w.disturb()
	w.eventually(20*time.Second, w.wrong)
	w.setSecret("cert-a", "a2")
	w.eventually(20*time.Second, w.wrong)

	// A Secret that is missing is told, and everything else goes on.
	w.addSite("early", "cert-c")
	w.do(w.Delete(w.Context(), &corev1.Secret{ObjectMeta: w.named("cert-b")}))
	delete(w.keys, "cert-b")
	owners["early"] = w.owners("replica-a", "replica-b", "replica-c")["early"]
	w.eventually(20*time.Second, w.wrong)
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "early"}, &appsv1.Deployment{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a Website is served without its certificate: %v", err)
	}
	w.setSecret("cert-c", "c1")
	w.setSecret("cert-b", "b1")
	w.eventually(20*time.Second, w.wrong)

	rolled := time.Now()
	w.setSecret("cert-b", "b2")
	w.eventually(20*time.Second, w.wrong)
	patches := map[string]int{}
	for _, write := range writes(t, plane, w.namespace) {
		if write.Received.After(begin) && write.Pod != owners[write.Name] {
			t.Errorf("%s wrote %s %s, whose Website is %s's", write.Pod, write.Resource, write.Name, owners[write.Name])
		}
		if write.Received.After(rolled) {
			patches[write.Resource+" of "+w.secrets[write.Name]]++
		}
	}
	if n := patches["deployments of cert-b"]; n != 14 || len(patches) != 1 {
		t.Errorf("a change of cert-b, which 14 Websites use, made these writes: %v", patches)
	}

	leave(t, replicas["replica-a"])
	w.disturb()
	w.setSecret("cert-a", "a3")
	w.eventually(30*time.Second, w.wrong)
	for name := range w.secrets {
		w.do(w.Delete(t.Context(), &webv1.Website{ObjectMeta: w.named(name)}))
	}
	w.eventually(20*time.Second, func() string {
		if left := files(t, w.pages); len(left) > 0 {
			return fmt.Sprintf("pages are left: %v", left)
		}
		return ""
	})
	leave(t, replicas["replica-b"])
	leave(t, replicas["replica-c"])
}

package writes

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/test/deliverytest"
)

func TestMetadataOfAnswers(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "a", Name: "b", UID: "u", ResourceVersion: "17", Finalizers: []string{"example.com/f"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "o",
			Controller: ptr.To(true)}},
	}
	for _, obj := range []runtime.Object{
		&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta,
			Spec: corev1.PodSpec{NodeName: "n"}},
		&corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta,
			Data: map[string][]byte{"metadata": []byte("x")}},
		&autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}, ObjectMeta: meta},
	} {
		kind := obj.GetObjectKind().GroupVersionKind()
		for _, media := range deliverytest.Encodings {
			got, err := metadataOf(media, deliverytest.Encoded(t, media, obj))
			if err != nil {
				t.Errorf("%s in %s: %v", kind, media, err)
				continue
			}
			if diff := cmp.Diff(meta, got.ObjectMeta); diff != "" || got.GroupVersionKind() != kind {
				t.Errorf("%s in %s: kind %v, metadata (-want +got):\n%s", kind, media, got.GroupVersionKind(), diff)
			}
		}
	}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success",
		Details: &metav1.StatusDetails{Name: "b"}}
	for _, media := range deliverytest.Encodings {
		if got, err := metadataOf(media, deliverytest.Encoded(t, media, status)); err != nil || !isStatus(got) {
			t.Errorf("a Status in %s: %v, %v", media, got, err)
		}
	}
}

// Fields may come in any order, and with others between them.
func TestMetadataOfJSONInAnyOrder(t *testing.T) {
	for _, text := range []string{
		`{"spec":{"metadata":{"name":"x"}},"metadata":{"name":"b"},"status":[],"kind":"Site","apiVersion":"example.com/v1"}`,
		`{"apiVersion":"example.com/v1","kind":"Site","metadata":{"name":"b"},"spec":`, // the rest is not looked at
	} {
		got, err := metadataOf("application/json; charset=utf-8", []byte(text))
		if err != nil || got.Name != "b" || got.GroupVersionKind() != (schema.GroupVersionKind{Group: "example.com",
			Version: "v1", Kind: "Site"}) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestWhatIsNoObject(t *testing.T) {
	for media, text := range map[string]string{
		"application/json":                               `[1]`,
		"application/json;x":                             `{}`,
		"text/plain":                                     `{"kind":"Pod","apiVersion":"v1","metadata":{}}`,
		"application/json;stream=watch":                  `{"kind":"Pod","apiVersion":"v1","metadata":{}}`,
		"application/vnd.kubernetes.protobuf":            `{"kind":"Pod"}`,
		"application/cbor":                               `{`,
		"application/vnd.kubernetes.protobuf;type=proto": "k8s\x00\xff",
	} {
		if got, err := metadataOf(media, []byte(text)); err == nil {
			t.Errorf("%s in %s: %+v, want an error", text, media, got)
		}
	}
}

// What was read of an answer is given back: all of it, and the error that ended it.
func TestReadUpToGivesBack(t *testing.T) {
	lost := errors.New("connection lost")
	for name, test := range map[string]struct {
		body  io.Reader
		whole bool
		err   error
	}{
		"short":   {strings.NewReader("0123456789"), true, nil},
		"long":    {strings.NewReader("0123456789x"), false, nil},
		"cut off": {io.MultiReader(strings.NewReader("01234"), failing{lost}), false, lost},
	} {
		all := map[string]string{"short": "0123456789", "long": "0123456789x", "cut off": "01234"}[name]
		read, rest, whole := readUpTo(test.body, 10)
		got, err := io.ReadAll(rest)
		if whole != test.whole || string(got) != all || !errors.Is(err, test.err) || whole && string(read) != all {
			t.Errorf("%s: whole %v, read %q, rest %q, error %v", name, whole, read, got, err)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	for _, media := range deliverytest.Encodings {
		f.Add(media, []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"}}`))
	}
	f.Fuzz(func(_ *testing.T, media string, text []byte) {
		_, _ = metadataOf(media, text)
	})
}

// Reads wait until the object that a deletion was about is gone, and not a namesake that the cache still shows.
func TestUIDOfStatus(t *testing.T) {
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}
	for _, want := range []types.UID{"", "u"} {
		if want != "" {
			status.Details = &metav1.StatusDetails{Name: "b", Kind: "configmaps", UID: want}
		}
		for _, media := range deliverytest.Encodings {
			if got := uidOfStatus(media, deliverytest.Encoded(t, media, status)); got != want {
				t.Errorf("%s: %q, want %q", media, got, want)
			}
		}
	}
	if got := uidOfStatus("text/plain", []byte("gone")); got != "" {
		t.Errorf("text: %q", got)
	}
}

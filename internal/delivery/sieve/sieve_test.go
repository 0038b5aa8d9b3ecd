package sieve_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/rota-dev/rota/internal/delivery/sieve"
	"github.com/rota-dev/rota/test/require"
)

// answer is an answer of the API server.
type answer struct {
	status   int
	media    string
	encoding string
	body     io.Reader
}

// get sends a request whose answer goes through the sieve, and returns the answer's body, and its length as announced.
func (a answer) get(t *testing.T, s *sieve.Sieve) (body []byte, length string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(s.Into(t.Context()), http.MethodGet, "http://example.com/", nil)
	require.NoError(t, err)
	res := &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {a.media}}, Body: io.NopCloser(a.body), ContentLength: -1,
	}
	if a.encoding != "" {
		res.Header.Set("Content-Encoding", a.encoding)
	}
	sieve.Apply(req, res)
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if res.ContentLength >= 0 && res.Header.Get("Content-Length") != strconv.FormatInt(res.ContentLength, 10) {
		t.Errorf("length %d, header %q", res.ContentLength, res.Header.Get("Content-Length"))
	}
	return body, res.Header.Get("Content-Length"), err
}

// noted is what a sieve has noted, and what it was asked about.
type noted struct {
	asked   []metav1.ObjectMeta
	bytes   int
	dropped []string
}

// dropping returns a sieve that drops some objects, and what it notes.
func dropping(drop func(about *metav1.ObjectMeta) bool) (*sieve.Sieve, *noted) {
	n := &noted{}
	return &sieve.Sieve{
		Drop: func(about *metav1.ObjectMeta) bool {
			n.asked = append(n.asked, *about)
			return drop(about)
		},
		Note: func(bytes int, dropped []*metav1.ObjectMeta) {
			n.bytes += bytes
			for _, about := range dropped {
				n.dropped = append(n.dropped, about.Name)
			}
		},
	}, n
}

func all(*metav1.ObjectMeta) bool { return true }

func encode(t *testing.T, media string, list runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatalf("no codec for %s", media)
	}
	out, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, appsv1.SchemeGroupVersion), list)
	require.NoError(t, err)
	return out
}

func decode(t *testing.T, body []byte) *appsv1.DeploymentList {
	t.Helper()
	list := &appsv1.DeploymentList{}
	require.NoError(t, runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), body, list))
	return list
}

func deployments(rng *rand.Rand, n int) *appsv1.DeploymentList {
	list := &appsv1.DeploymentList{}
	list.ResourceVersion, list.Continue = "77", `"next" \ page`
	remaining := int64(3)
	list.RemainingItemCount = &remaining
	for i := range n {
		var d appsv1.Deployment
		d.Namespace, d.Name = fmt.Sprintf("ns-%d", rng.IntN(3)), fmt.Sprintf("site-%d", i)
		d.UID, d.ResourceVersion = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprint(i+1)
		for r := range rng.IntN(3) {
			controls := r == 0
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{
				APIVersion: "example.com/v1", Kind: "Website", Name: fmt.Sprint("owner-", r), UID: "o", Controller: &controls,
			})
		}
		d.Annotations = map[string]string{"note": strings.Repeat(`}]",:{"name":"x"é\`, rng.IntN(4))}
		d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:x":{}}`)}}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx"}}
		list.Items = append(list.Items, d)
	}
	return list
}

// A client that decodes what is left gets what it would have kept of the whole list.
func TestTheRestOfAListIsUnchanged(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(media, func(t *testing.T) {
			for seed := range uint64(50) {
				rng := rand.New(rand.NewPCG(seed, 0))
				list := deployments(rng, rng.IntN(20))
				dropped := map[string]bool{}
				var about []metav1.ObjectMeta
				var names []string
				want := list.DeepCopy()
				want.Items = nil
				for _, d := range list.Items {
					if dropped[d.Name] = rng.IntN(3) > 0; dropped[d.Name] {
						names = append(names, d.Name)
					} else {
						want.Items = append(want.Items, d)
					}
					about = append(about, metav1.ObjectMeta{
						Name: d.Name, Namespace: d.Namespace, UID: d.UID, OwnerReferences: d.OwnerReferences,
					})
				}
				body := encode(t, media, list)
				s, n := dropping(func(about *metav1.ObjectMeta) bool { return dropped[about.Name] })
				got, length, err := answer{status: http.StatusOK, media: media, body: bytes.NewReader(body)}.get(t, s)
				require.NoError(t, err)
				if diff := cmp.Diff(normal(want), normal(decode(t, got))); diff != "" {
					t.Fatalf("seed %d: %s", seed, diff)
				}
				if diff := cmp.Diff(about, n.asked); diff != "" {
					t.Fatalf("seed %d: asked about: %s", seed, diff)
				}
				if diff := cmp.Diff(names, n.dropped); diff != "" || n.bytes != len(body) {
					t.Fatalf("seed %d: noted %d bytes, want %d, and dropped objects: %s", seed, n.bytes, len(body), diff)
				}
				if length != strconv.Itoa(len(got)) {
					t.Fatalf("announced %q bytes, sent %d", length, len(got))
				}
			}
		})
	}
}

// normal returns a list without the difference between no items and an empty list of them.
func normal(list *appsv1.DeploymentList) *appsv1.DeploymentList {
	if len(list.Items) == 0 {
		list.Items = nil
	}
	list.TypeMeta = metav1.TypeMeta{}
	return list
}

// The numbers of the fields that the sieve reads are the same for all kinds.
func TestAllKindsHaveTheFields(t *testing.T) {
	expect := func(of reflect.Type, field, number string) {
		t.Helper()
		f, ok := of.FieldByName(field)
		if !ok {
			t.Errorf("%s has no field %s", of, field)
			return
		}
		if tag := strings.Split(f.Tag.Get("protobuf"), ","); len(tag) < 2 || tag[1] != number {
			t.Errorf("%s.%s: protobuf tag %v, want number %s", of, field, tag, number)
		}
	}
	lists := 0
	for kind, of := range maps.All(scheme.Scheme.AllKnownTypes()) {
		items, ok := of.FieldByName("Items")
		if !ok || items.Type.Kind() != reflect.Slice || kind.Group == "" && kind.Kind == "List" {
			continue
		}
		lists++
		expect(of, "Items", "2")
		expect(items.Type.Elem(), "ObjectMeta", "1")
	}
	if lists < 50 {
		t.Errorf("%d lists: want those of all kinds", lists)
	}
	about := reflect.TypeFor[metav1.ObjectMeta]()
	for field, number := range map[string]string{"Name": "1", "Namespace": "3", "UID": "5", "OwnerReferences": "13"} {
		expect(about, field, number)
	}
}

func TestWhatIsNotUnderstoodStays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	list := deployments(rng, 3)
	asJSON, asProtobuf := encode(t, runtime.ContentTypeJSON, list), encode(t, runtime.ContentTypeProtobuf, list)
	nameless := list.DeepCopy()
	nameless.Items[2].Name = ""
	for name, a := range map[string]struct {
		answer
		body []byte
	}{
		"refused":          {answer{status: http.StatusForbidden, media: "application/json"}, asJSON},
		"compressed":       {answer{status: http.StatusOK, media: "application/json", encoding: "gzip"}, asJSON},
		"another encoding": {answer{status: http.StatusOK, media: "application/cbor"}, []byte{0xd9, 0xd9, 0xf7}},
		"no encoding":      {answer{status: http.StatusOK}, asJSON},
		"a watch":          {answer{status: http.StatusOK, media: "application/json;stream=watch"}, asJSON},
		"one object":       {answer{status: http.StatusOK, media: "application/json"}, []byte(`{"metadata":{"name":"x"}}`)},
		"items of a kind":  {answer{status: http.StatusOK, media: "application/json"}, []byte(`{"items":{"a":{}}}`)},
		"no items":         {answer{status: http.StatusOK, media: "application/json"}, []byte(`{"items":null}`)},
		"no JSON":          {answer{status: http.StatusOK, media: "application/json"}, []byte(`<html>`)},
		"an item that is no JSON": {
			answer{status: http.StatusOK, media: "application/json"},
			[]byte(`{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},},{"metadata":{"name":"c"}}]}`),
		},
		"no name, JSON": {
			answer{status: http.StatusOK, media: "application/json"}, encode(t, runtime.ContentTypeJSON, nameless),
		},
		"no protobuf": {answer{status: http.StatusOK, media: runtime.ContentTypeProtobuf}, asJSON},
		"half of it, protobuf": {
			answer{status: http.StatusOK, media: runtime.ContentTypeProtobuf}, asProtobuf[:len(asProtobuf)/2],
		},
		"no name, protobuf": {
			answer{status: http.StatusOK, media: runtime.ContentTypeProtobuf}, encode(t, runtime.ContentTypeProtobuf, nameless),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := dropping(all)
			a.answer.body = bytes.NewReader(a.body)
			got, _, err := a.get(t, s)
			require.NoError(t, err)
			if !bytes.Equal(got, a.body) || n.bytes != 0 || len(n.dropped) > 0 {
				t.Errorf("got %q, noted %d bytes and %q: want it unchanged", got, n.bytes, n.dropped)
			}
		})
	}
}

// A list that is cut off fails as it would without the sieve.
func TestCutOff(t *testing.T) {
	body := encode(t, runtime.ContentTypeJSON, deployments(rand.New(rand.NewPCG(1, 1)), 3))
	cut := errors.New("connection reset")
	s, _ := dropping(all)
	got, _, err := answer{
		status: http.StatusOK, media: runtime.ContentTypeJSON,
		body: io.MultiReader(bytes.NewReader(body[:100]), iotest.ErrReader(cut)),
	}.get(t, s)
	if !errors.Is(err, cut) || !bytes.Equal(got, body[:100]) {
		t.Errorf("got %q and %v: want the first 100 bytes and %v", got, err, cut)
	}
}

// Two transports, one in the other, do what one does. Answers to further requests of the same list are added.
func TestTwoTransports(t *testing.T) {
	body := encode(t, runtime.ContentTypeJSON, deployments(rand.New(rand.NewPCG(1, 1)), 3))
	s, n := dropping(all)
	req, err := http.NewRequestWithContext(s.Into(t.Context()), http.MethodGet, "http://example.com/", nil)
	require.NoError(t, err)
	for round := range 2 {
		res := &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(body)),
		}
		sieve.Apply(req, res)
		sieve.Apply(req, res)
		require.NoError(t, res.Body.Close())
		if want := round + 1; n.bytes != want*len(body) || len(n.dropped) != 3*want {
			t.Errorf("round %d: noted %d bytes and %q", round, n.bytes, n.dropped)
		}
	}
}

func FuzzApply(f *testing.F) {
	list, _ := json.Marshal(deployments(rand.New(rand.NewPCG(1, 1)), 2))
	f.Add(list, true)
	f.Add([]byte(`{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b","ownerReferences":[{"controller":true}]}}]}`), true)
	protobuf := &appsv1.DeploymentList{}
	protobuf.Items = deployments(rand.New(rand.NewPCG(1, 1)), 2).Items
	raw, _ := protobuf.Marshal()
	unknown, _ := (&runtime.Unknown{Raw: raw}).Marshal()
	f.Add(append([]byte("k8s\x00"), unknown...), false)
	f.Fuzz(func(t *testing.T, body []byte, isJSON bool) {
		media := runtime.ContentTypeProtobuf
		if isJSON {
			media = runtime.ContentTypeJSON
		}
		// What drops nothing changes nothing that a client would see.
		s, _ := dropping(func(*metav1.ObjectMeta) bool { return false })
		got, _, err := answer{status: http.StatusOK, media: media, body: bytes.NewReader(body)}.get(t, s)
		require.NoError(t, err)
		var before, after appsv1.DeploymentList
		decoder := scheme.Codecs.UniversalDeserializer()
		wanted, failed := runtime.DecodeInto(decoder, body, &before), runtime.DecodeInto(decoder, got, &after)
		if wanted == nil && (failed != nil || !cmp.Equal(normal(&before), normal(&after))) {
			t.Errorf("%q became %q: %v", body, got, failed)
		}
	})
}

package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/writes"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// office is a member with a primary kind, Secret, of which a/s is open, and ConfigMaps that are owned by Secrets or
// cached whole.
type office struct {
	*Engine
	slot   slot.Slot
	server *deliverytest.Memory
	ctx    context.Context // of a reconcile of a/s
	leave  func()
	log    *lines
}

var configMaps = schema.GroupKind{Kind: "ConfigMap"}

func newOffice(t *testing.T, owned bool) *office {
	t.Helper()
	o := &office{server: deliverytest.NewMemory()}
	o.Engine, o.log = loggedRota(t)
	secrets := secretKind
	_, err := o.newTestController("secrets", secrets, ignore)
	require.NoError(t, err)
	if owned && !o.share.Own(configMaps, secrets, true) {
		t.Fatal("not owned")
	}
	o.slot = o.share.Slot("a", "s", "")
	inf := o.share.NewInformer(configMaps, o.server.ListWatch("", ""), &corev1.ConfigMap{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	mine := slot.SetOf(slot.Range{First: o.slot, Last: o.slot})
	o.share.Hold(mine)
	if !cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced) || o.share.Warm(t.Context(), mine) != nil {
		t.Fatal("the informer does not sync")
	}
	join(o.Engine)
	mayWrite(o.Engine, time.Hour)
	o.gate.SetDeadline(o.now() + time.Hour)
	o.gate.Open(mine, 1)
	inner, leave, verdict := o.gate.Enter(t.Context(), o.slot, gate.Key{Namespace: "a", Name: "s"}, false)
	if verdict != gate.Admitted {
		t.Fatal(verdict)
	}
	t.Cleanup(leave)
	o.leave = leave
	o.ctx = o.withSlot(inner, o.slot)
	return o
}

// version returns what the next owner of a slot waits for.
func (o *office) version(s slot.Slot) string {
	return o.share.Versions(slot.SetOf(slot.Range{First: s, Last: s}))["ConfigMap"]
}

func configMap(name, version, owner string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: version},
	}
	if owner != "" {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: owner, UID: "o",
			Controller: ptr.To(true)}}
	}
	return c
}

// request is one that a test sends, and what is answered.
type request struct {
	method, path string
	body         runtime.Object
	code         int // 0: 200
	answer       runtime.Object
	media        string // "": JSON
	fail         error
}

func (q request) send(ctx context.Context, t *testing.T, r *Engine) (sent bool, err error) {
	t.Helper()
	media := q.media
	if media == "" {
		media = "application/json"
	}
	var body, text []byte
	if q.body != nil {
		body = deliverytest.Encoded(t, media, q.body)
	}
	if q.answer != nil {
		text = deliverytest.Encoded(t, media, q.answer)
	}
	req, err := http.NewRequestWithContext(ctx, q.method, "https://example.com"+q.path, bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", media)
	resp, err := r.WrapTransport(roundTripper(func(req *http.Request) (*http.Response, error) {
		sent = true
		if got, err := io.ReadAll(req.Body); err != nil || !bytes.Equal(got, body) {
			t.Errorf("sent is %q, %v; want the request as it was", got, err)
		}
		resp := status(max(q.code, http.StatusOK))
		resp.Header = http.Header{"Content-Type": {media}}
		resp.Body = io.NopCloser(bytes.NewReader(text))
		return resp, q.fail
	})).RoundTrip(req)
	if err != nil {
		return sent, err
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the client gets %q, %v; want the answer as it is", got, err)
	}
	return sent, nil
}

const path = "/api/v1/namespaces/a/configmaps"

// R8: what clients of this member write is noted by the transport, whatever they do it with.
func TestR08WritesAreNoted(t *testing.T) {
	scale := &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", ResourceVersion: "1000"}}
	ok := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Success"}
	all := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		DryRun: []string{"All"}}
	const no, noted, asked = "", "1000", "a read" // what comes of it: nothing, this version, or one that has to be read
	for name, test := range map[string]struct {
		request
		owned, whole string
	}{
		"create": {request{method: "POST", path: path, code: 201, answer: configMap("c", "1000", "s")},
			noted, noted},
		"create in protobuf": {request{method: "POST", path: path, code: 201, answer: configMap("c", "1000", "s"),
			media: deliverytest.Encodings[1]}, noted, noted},
		"create in CBOR": {request{method: "POST", path: path, code: 201, answer: configMap("c", "1000", "s"),
			media: deliverytest.Encodings[2]}, noted, noted},
		"update": {request{method: "PUT", path: path + "/c", answer: configMap("c", "1000", "s")}, noted,
			noted},
		"patch of a status": {request{method: "PATCH", path: path + "/c/status", answer: configMap("c", "1000", "s")},
			noted, noted},
		"apply": {request{method: "PATCH", path: path + "/c", answer: configMap("c", "1000", "s"),
			code: 201}, noted, noted},
		"a scale": {request{method: "PUT", path: path + "/mine/scale", answer: scale}, noted, noted},
		"a child that is released": {request{method: "PUT", path: path + "/mine", answer: configMap("mine", "1000", "")},
			noted, noted},
		"one that is no child": {request{method: "PUT", path: path + "/c", answer: configMap("c", "1000", "")}, noted,
			noted},
		"dry run": {request{method: "PUT", path: path + "/c?dryRun=All",
			answer: configMap("c", "1000", "s")}, no, no},
		"deletion for a dry run": {request{method: "DELETE", path: path + "/mine", body: all,
			answer: configMap("mine", "1000", "s")}, no, no},
		"the same in protobuf": {request{method: "DELETE", path: path + "/mine", body: all, answer: ok,
			media: deliverytest.Encodings[1]}, no, no},
		"refused": {request{method: "PUT", path: path + "/c", code: 409, answer: ok}, no, no},
		"binding": {request{method: "POST", path: path + "/mine/binding", code: 201, answer: ok}, asked,
			asked},
		"a token":              {request{method: "POST", path: path + "/mine/token", code: 201, answer: ok}, no, no},
		"no answer to be read": {request{method: "PUT", path: path + "/c"}, asked, asked},
		"an answer of 500":     {request{method: "PUT", path: path + "/c", code: 500}, asked, asked},
		"no answer":            {request{method: "PUT", path: path + "/c", fail: io.ErrUnexpectedEOF}, asked, asked},
		"of a collection":      {request{method: "DELETE", path: path, answer: ok}, asked, asked},
		"another kind": {request{method: "PUT", path: "/api/v1/namespaces/a/services/c",
			answer: configMap("c", "1000", "s")}, no, no},
		"deletion that waits": {request{method: "DELETE", path: path + "/mine", answer: func() *corev1.ConfigMap {
			c := configMap("mine", "1000", "s")
			c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/f"}
			return c
		}()}, noted, noted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for owned, want := range map[bool]string{true: test.owned, false: test.whole} {
				o := newOffice(t, owned)
				there := o.server.Put(configMap("mine", "", "s"))
				until(t, "it is there", func() bool { return o.share.Exists(configMaps, there.Key) })
				before := o.version(o.slot)
				if _, err := test.send(o.ctx, t, o.Engine); !errors.Is(err, test.fail) {
					t.Fatal(err)
				}
				got := o.version(o.slot)
				if want == no && got != before || want == noted && got != noted {
					t.Errorf("owned %v: version %q (before: %q), want %q", owned, got, before, want)
				}
				if unsettled := o.share.Unsettled(o.slot); unsettled != (want == asked) {
					t.Errorf("owned %v: unsettled %v, want %v", owned, unsettled, want == asked)
				}
			}
		})
	}
}

// R8: a write without the context of a reconcile counts where its object does. Whoever writes children so outside a sync
// may take them from a queue to which nothing comes with a slot.
func TestR08StrayWritesAreNoted(t *testing.T) {
	for owned, queued := range map[bool]int{true: 1, false: 0} {
		o := newOffice(t, owned)
		q, _ := testQueue(t, o.Engine)
		write := func(context.Context, cache.ObjectName) error {
			_, err := request{method: "POST", path: path, body: configMap("", "", "s"), answer: configMap("c", "1000", "s")}.
				send(t.Context(), t, o.Engine)
			return err
		}
		q.Add(cache.ObjectName{Namespace: "a", Name: "s"})
		item, _ := q.Get()
		require.NoError(t, q.Admit(write)(t.Context(), item))
		if got := o.version(o.slot); got != "1000" {
			t.Errorf("owned %v: version %q, want 1000", owned, got)
		}
		o.log.wants(t, 1, "without the context of a reconcile")
		o.log.wants(t, 1, "without the context of a reconcile", "note_test.go:")
		o.log.wants(t, 0, "rota.NewQueueOf")
		for range 2 {
			require.NoError(t, write(t.Context(), item))
		}
		o.log.wants(t, queued, "rota.NewQueueOf")
	}
}

// R2, R6: such a write is held to the slot of its object: it keeps the slot from moving on, and it is not sent once the
// slot is drained, has lapsed, or was lost by a reconcile that is still running. Then nothing is sent that may belong to
// that reconcile, as long as it runs. Objects of slots that have nothing to do with this member are others' business.
func TestR06StrayWritesKeepToTheirSlot(t *testing.T) {
	const secret, another = "/api/v1/namespaces/a/secrets/s", "/api/v1/namespaces/a/secrets/another"
	const child, claims = path + "/mine", "/api/v1/namespaces/a/persistentvolumeclaims/data"
	open := func(*office, slot.Set) {}
	lost := func(o *office, mine slot.Set) { o.gate.Shut(mine) }
	late := func(o *office, _ slot.Set) { o.gate.SetDeadline(o.now()); mayWrite(o.Engine, 0) }
	lapsed := func(o *office, mine slot.Set) { late(o, mine); lost(o, mine) }
	expelled := func(o *office, mine slot.Set) {
		lapsed(o, mine)
		o.share.Release(mine)
		until(t, "the child is forgotten", func() bool { return o.share.Size(configMaps) == 0 })
	}
	opened := func(epoch uint64) func(*office, slot.Set) {
		return func(o *office, mine slot.Set) { lost(o, mine); o.gate.Open(mine, epoch) }
	}
	returned := func(state func(*office, slot.Set)) func(*office, slot.Set) {
		return func(o *office, mine slot.Set) { state(o, mine); o.leave() }
	}
	for name, test := range map[string]struct {
		path  string
		state func(o *office, mine slot.Set)
		err   error
	}{
		"open": {secret, open, nil},
		"draining": {secret, func(o *office, mine slot.Set) {
			o.gate.Drain(mine, func(slot.Slot) bool { return false }, func(slot.Slot) {})
		}, nil},
		"lost":                            {secret, lost, gate.ErrLost},
		"past the deadline":               {secret, late, writes.ErrDeadline},
		"lapsed":                          {secret, returned(lapsed), writes.ErrDeadline},
		"renewed after a lapse":           {secret, opened(1), nil},
		"back from another member":        {secret, opened(2), gate.ErrLost},
		"another's":                       {another, open, nil},
		"another's, while one is lost":    {another, lost, gate.ErrLost},
		"a child":                         {child, open, nil},
		"a child that is forgotten":       {child, expelled, writes.ErrDeadline},
		"a child, the reconcile returned": {child, returned(expelled), nil},
		"whole":                           {claims, open, nil},
		"whole, lost":                     {claims, lost, gate.ErrLost},
		"whole, past the deadline":        {claims, late, writes.ErrDeadline},
		"whole, renewed after a lapse":    {claims, opened(1), nil},
		"whole, back from another member": {claims, opened(2), gate.ErrLost},
		"whole, the reconcile returned":   {claims, returned(late), nil},
		"an event":                        {"/apis/events.k8s.io/v1/namespaces/a/events/e", expelled, nil},
		"the Lease of another election":   {"/apis/coordination.k8s.io/v1/namespaces/a/leases/l", expelled, nil},
		"a dry run":                       {claims + "?dryRun=All", expelled, nil},
		"a review":                        {"/apis/authentication.k8s.io/v1/tokenreviews", expelled, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t, true)
			o.server.Put(configMap("mine", "", "s"))
			until(t, "the child is there", func() bool { return o.share.Size(configMaps) == 1 })
			test.state(o, slot.SetOf(slot.Range{First: o.slot, Last: o.slot}))
			sent, err := request{method: http.MethodDelete, path: test.path}.send(t.Context(), t, o.Engine)
			if !errors.Is(err, test.err) || sent != (test.err == nil) {
				t.Errorf("sent %v, error %v; want %v", sent, err, test.err)
			}
		})
	}
	t.Run("of unknown outcome", func(t *testing.T) {
		o := newOffice(t, false)
		before := o.gate.InFlightIn(o.slot)
		if _, err := (request{method: "PUT", path: secret, fail: io.ErrUnexpectedEOF}).
			send(t.Context(), t, o.Engine); err == nil {
			t.Fatal("no error")
		}
		if n := o.gate.InFlightIn(o.slot); n != before+1 {
			t.Errorf("%d in flight, want one more than %d", n, before)
		}
	})
}

// Where reconciles write a kind that is watched past the rota, the next owner of a slot may not see it: that is said.
func TestPlainInformersAreNoticed(t *testing.T) {
	o := newOffice(t, false)
	services := "/api/v1/namespaces/a/services"
	write := func() {
		if _, err := (request{method: "PUT", path: services + "/c", answer: configMap("c", "1", "")}).
			send(o.ctx, t, o.Engine); err != nil {
			t.Fatal(err)
		}
	}
	write()
	o.log.wants(t, 0, "rota.ShareInformer")
	for range 2 {
		_, err := (request{method: "GET", path: services + "?watch=true"}).send(t.Context(), t, o.Engine)
		require.NoError(t, err)
		write()
	}
	o.log.wants(t, 1, "rota.ShareInformer")
}

package writes

import (
	"encoding/json"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// answerLimit limits the bytes of an answer that are read to find the version written. etcd limits requests to 1.5 MiB.
const answerLimit = 16 << 20

// noted records the result of a write for the slots' next owners. It is nil if no owner waits for the write.
type noted struct {
	of     *Writes
	target target
	write  *ledger.Write
	ends   bool // it deletes the object that it names
	owned  bool // its kind is sharded, by its own keys or by its owners' keys
	child  bool // its kind is sharded by its owners' keys
}

// noting returns a noted for a write that is about to be sent. by is the reconcile that sends it, unless it is stray.
func (w *Writes) noting(req *http.Request, by work.Admitted, stray bool, in cluster) *noted {
	t, ok := in.target(req)
	if !ok || !t.changes() || isDryRun(req) || w.resources.elsewhere(t.group(), in) {
		return nil
	}
	share := w.env.Share
	kind, ok := w.resources.kind(t.group(), share.Known)
	if !ok || !share.Knows(kind) {
		if !stray && w.resources.unknown(t.group()) {
			w.env.Log.Info("Reconciles write objects of a kind that is watched by an informer of which the rota knows nothing: "+
				"when slots come here, that may be behind what their former owner wrote. Make it with Rota.NewInformer, which "+
				"leaves it whole where nothing shards the kind, or with rota.ShareInformer", "resource", t.group().String())
		}
		return nil
	}
	ends := t.sub == "eviction" || req.Method == http.MethodDelete && t.name.Name != "" && t.sub == ""
	n := &noted{of: w, target: t, ends: ends}
	n.child = share.Owned(kind)
	n.owned = share.Sharded(kind) || n.child
	name := t.name
	var body metav1.Object
	if about := bodyOf(req); stray && about != nil && t.sub == "" {
		about.Namespace = t.name.Namespace
		if name.Name == "" {
			name.Name = about.Name
		}
		body = about
	}
	n.write = w.write(kind, name, body, by, !stray)
	if ledger.IsUnawaited(req.Context()) {
		n.write.Unawaited()
	}
	return n
}

// write returns a write of an object for the share. by is the reconcile that sends it, if inFlight.
func (w *Writes) write(
	kind schema.GroupKind, name types.NamespacedName, body metav1.Object, by work.Admitted, inFlight bool,
) *ledger.Write {
	if !inFlight {
		return w.env.Share.Write(kind, name, body).Author("")
	}
	return w.env.Share.Write(kind, name, body, by.Slot).Author(by.Author)
}

// bodyOf returns the metadata of the object in a request, or nil if the request has no complete object.
func bodyOf(req *http.Request) *metav1.PartialObjectMetadata {
	if req.GetBody == nil || req.Method == http.MethodDelete {
		return nil
	}
	media := req.Header.Get("Content-Type")
	if req.Method == http.MethodPatch && !strings.HasPrefix(media, "application/apply-patch") {
		return nil
	}
	about, err := metadataOf(media, copyOf(req))
	if err != nil {
		return nil
	}
	return about
}

// copyOf returns a copy of a request's body.
func copyOf(req *http.Request) []byte {
	if req.GetBody == nil {
		return nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil
	}
	defer func() { _ = body.Close() }()
	text, _, _ := readUpTo(body, answerLimit)
	return text
}

// isDryRun reports whether a request is a dry run. Deletions have that option in their body.
func isDryRun(req *http.Request) bool {
	if req.URL.Query().Get("dryRun") != "" {
		return true
	}
	if req.Method != http.MethodDelete {
		return false
	}
	var o metav1.DeleteOptions
	body := copyOf(req)
	if raw, ok := strings.CutPrefix(string(body), protobufPrefix); ok {
		var unknown apiruntime.Unknown
		if unknown.Unmarshal([]byte(raw)) != nil || o.Unmarshal(unknown.Raw) != nil {
			return false
		}
	} else if json.Unmarshal(body, &o) != nil {
		return false
	}
	return len(o.DryRun) > 0
}

// slots returns the slots of the sharded objects that the write changes, as far as they are known.
func (n *noted) slots() []slot.Slot {
	if n == nil {
		return nil
	}
	return n.write.Slots()
}

// lost notes that the outcome of the write is unknown.
func (n *noted) lost() {
	if n != nil {
		n.write.Lost()
	}
}

// answered notes the API server's answer. It reads the answer's body and puts it back.
func (n *noted) answered(resp *http.Response) {
	if n == nil || resp.StatusCode < http.StatusOK {
		return
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		if n.ends && resp.StatusCode == http.StatusNotFound {
			n.write.Missing() // the next owner should not wait for an object that is gone
		}
		return
	}
	about, status := answerOf(resp)
	var uid types.UID
	if about != nil && isStatus(about) && n.ends && n.write.Awaited() {
		uid = status()
	}
	n.about(about, uid)
}

// about records the object in an answer, which is nil if it could not be read. uid is the UID that a Status names.
func (n *noted) about(about *metav1.PartialObjectMetadata, uid types.UID) {
	switch t := n.target; {
	case about == nil:
		n.write.Lost()
	case isStatus(about):
		if n.ends {
			if n.target.sub != "" {
				n.write.Unawaited() // an evicted Pod may take a while to end
			}
			n.write.Deleted(&metav1.ObjectMeta{UID: uid})
			return
		}
		n.write.Lost() // the answer shows neither the objects of a collection nor the object of a subresource
	case about.GroupVersionKind().Group != t.version.Group || t.sub != "" && !n.isObject(about):
		n.write.Version(about.ResourceVersion) // such as a Scale, which has its object's version
	case n.ends:
		n.write.Deleted(about)
	case t.name.Name == "" && strings.HasSuffix(about.Kind, "List"):
		n.write.Lost()
	default:
		if t.sub == "" {
			n.of.resources.learn(t.group(), about.GroupVersionKind().GroupKind())
		}
		n.write.Answered(about)
	}
}

// isObject reports whether the answer of a subresource is the object itself.
func (n *noted) isObject(about *metav1.PartialObjectMetadata) bool {
	kind, ok := n.of.resources.kind(n.target.group(), n.of.env.Share.Known)
	return ok && kind == about.GroupVersionKind().GroupKind()
}

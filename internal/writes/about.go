package writes

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// About is what a request changes.
type About struct {
	Resource schema.GroupVersionResource
	// Name is the object's namespace and name in the path. The name is empty for a create and for the deletion of a
	// collection.
	Name types.NamespacedName
	// Subresource may be empty.
	Subresource string
}

// AboutOf returns what a request changes. ok is false if it changes no object, such as a read or a dry run.
func AboutOf(req *http.Request) (about About, ok bool) {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return About{}, false
	}
	t, ok := cluster{}.target(req)
	if !ok || !t.changes() || isDryRun(req) {
		return About{}, false
	}
	return About{t.version.WithResource(t.resource), t.name, t.sub}, true
}

// AnswerOf returns the kind and metadata of the object in an answer, or nil if there is none. It reads the answer's
// body and puts it back.
func AnswerOf(resp *http.Response) *metav1.PartialObjectMetadata {
	about, _ := answerOf(resp)
	return about
}

// answerOf is AnswerOf. If the answer is a Status, status returns the UID of its object.
func answerOf(resp *http.Response) (about *metav1.PartialObjectMetadata, status func() types.UID) {
	media := resp.Header.Get("Content-Type")
	if resp.Body == nil || resp.Header.Get("Content-Encoding") != "" || encodingOf(media) == "" {
		return nil, nil
	}
	text, rest, whole := readUpTo(resp.Body, answerLimit)
	resp.Body = body{rest, resp.Body}
	if !whole {
		return nil, nil
	}
	about, _ = metadataOf(media, text)
	return about, func() types.UID { return uidOfStatus(media, text) }
}

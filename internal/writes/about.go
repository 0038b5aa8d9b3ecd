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
	// Name is that in the path. Of a create and of a deletion of a collection, its Name is empty.
	Name types.NamespacedName
	// Subresource may be empty.
	Subresource string
}

// AboutOf says what a request changes; false for one that changes no object, such as a read or a dry run.
func AboutOf(req *http.Request) (About, bool) {
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

// AnswerOf returns the kind and the metadata of the object in an answer; nil if it has none. It reads the answer's body
// and puts it back.
func AnswerOf(resp *http.Response) *metav1.PartialObjectMetadata {
	about, _ := answerOf(resp)
	return about
}

// answerOf is AnswerOf. status returns the UID of the object that the answer is about, if it is a Status.
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

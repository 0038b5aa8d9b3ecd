package writes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
)

// protobufPrefix begins every object in protobuf.
const protobufPrefix = "k8s\x00"

var (
	errEncoding = errors.New("neither JSON nor protobuf nor CBOR")
	errNoObject = errors.New("no Kubernetes object")
)

// metadataOf reads only the kind and the metadata of an encoded object. contentType is the Content-Type header.
func metadataOf(contentType string, body []byte) (*metav1.PartialObjectMetadata, error) {
	switch encodingOf(contentType) {
	case "json":
		return metadataOfJSON(body)
	case "protobuf":
		raw, ok := bytes.CutPrefix(body, []byte(protobufPrefix))
		var unknown runtime.Unknown
		if !ok || unknown.Unmarshal(raw) != nil {
			return nil, errNoObject
		}
		// The metadata are field 1 of every kind of object, as they are here; other fields are skipped.
		about := &metav1.PartialObjectMetadata{}
		if err := about.Unmarshal(unknown.Raw); err != nil {
			about = &metav1.PartialObjectMetadata{} // such as a Status, which its kind shows
		}
		about.TypeMeta = metav1.TypeMeta{APIVersion: unknown.APIVersion, Kind: unknown.Kind}
		return about, checked(about)
	case "cbor":
		var fields map[string]any
		if err := direct.Unmarshal(body, &fields); err != nil {
			return nil, fmt.Errorf("CBOR: %w", err)
		}
		about := &metav1.PartialObjectMetadata{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, about); err != nil {
			return nil, fmt.Errorf("CBOR: %w", err)
		}
		return about, checked(about)
	default:
		return nil, errEncoding
	}
}

// uidOfStatus returns the UID of the object that an encoded Status names, or "".
func uidOfStatus(contentType string, body []byte) types.UID {
	var status metav1.Status
	switch encodingOf(contentType) {
	case "json":
		_ = json.Unmarshal(body, &status)
	case "protobuf":
		raw, _ := bytes.CutPrefix(body, []byte(protobufPrefix))
		var unknown runtime.Unknown
		if unknown.Unmarshal(raw) == nil {
			_ = status.Unmarshal(unknown.Raw)
		}
	case "cbor":
		_ = direct.Unmarshal(body, &status)
	}
	if status.Details == nil {
		return ""
	}
	return status.Details.UID
}

func checked(about *metav1.PartialObjectMetadata) error {
	if about.Kind == "" || about.APIVersion == "" {
		return errNoObject
	}
	return nil
}

// encodingOf returns the encoding of a body of that type, patches included, or "" if it is not a single object.
func encodingOf(contentType string) string {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["stream"] != "" {
		return ""
	}
	switch {
	// clients send apply patches as JSON
	case media == "application/json", strings.HasSuffix(media, "+json"), media == "application/apply-patch+yaml":
		return "json"
	case media == "application/vnd.kubernetes.protobuf":
		return "protobuf"
	case media == "application/cbor", strings.HasSuffix(media, "+cbor"):
		return "cbor"
	default:
		return ""
	}
}

// metadataOfJSON stops reading once it has the kind and metadata, which API servers and clients write early.
func metadataOfJSON(body []byte) (*metav1.PartialObjectMetadata, error) {
	about := &metav1.PartialObjectMetadata{}
	wanted := map[string]any{"apiVersion": &about.APIVersion, "kind": &about.Kind, "metadata": &about.ObjectMeta}
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoObject
	}
	for len(wanted) > 0 && d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("JSON: %w", err)
		}
		key, _ := name.(string)
		into, ok := wanted[key]
		if !ok {
			into = new(json.RawMessage)
		}
		if err := d.Decode(into); err != nil {
			return nil, fmt.Errorf("JSON: %s: %w", key, err)
		}
		delete(wanted, key)
	}
	return about, checked(about)
}

// isStatus reports whether an answer is a Status rather than an object.
func isStatus(about *metav1.PartialObjectMetadata) bool {
	return about.GroupVersionKind() == schema.GroupVersionKind{Version: "v1", Kind: "Status"}
}

// readUpTo reads up to limit bytes of a body. whole is true if that is all. rest reads the whole body again.
func readUpTo(body io.Reader, limit int64) (read []byte, rest io.Reader, whole bool) {
	read, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, io.MultiReader(bytes.NewReader(read), failing{err}), false
	}
	if int64(len(read)) > limit {
		return nil, io.MultiReader(bytes.NewReader(read), body), false
	}
	return read, bytes.NewReader(read), true
}

type failing struct{ err error }

// Read implements io.Reader.
func (f failing) Read([]byte) (int, error) { return 0, f.err }

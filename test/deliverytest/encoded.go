package deliverytest

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/rota-dev/rota/test/require"
)

// Encodings are the media types in which API servers and clients send objects.
var Encodings = []string{"application/json", "application/vnd.kubernetes.protobuf", "application/cbor"}

// Encoded returns an object as it is sent.
func Encoded(t *testing.T, media string, obj runtime.Object) []byte {
	t.Helper()
	var text []byte
	var err error
	switch media {
	case "application/vnd.kubernetes.protobuf":
		var out bytes.Buffer
		err = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(obj, &out)
		text = out.Bytes()
	case "application/cbor":
		var fields map[string]any
		if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err == nil {
			text, err = direct.Marshal(fields)
		}
	default:
		text, err = json.Marshal(obj)
	}
	require.NoError(t, err)
	return text
}

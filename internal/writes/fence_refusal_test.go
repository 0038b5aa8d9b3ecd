package writes

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A body that ends in an error is passed on as it is.
func TestRefusalsThatBreakOff(t *testing.T) {
	broken := errors.New("broken")
	resp := &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(io.MultiReader(strings.NewReader("abc"), failing{broken}))}
	New(Env{}).reportRefusal(resp)
	if text, err := io.ReadAll(resp.Body); string(text) != "abc" || !errors.Is(err, broken) {
		t.Errorf("%q, %v", text, err)
	}
}

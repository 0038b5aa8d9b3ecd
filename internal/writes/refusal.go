package writes

import (
	"bytes"
	"io"
	"net/http"

	"github.com/rota-dev/rota/internal/names"
)

// refusalLimit is how much of a refusal is read to see whether it is the fence's, in bytes.
const refusalLimit = 8 << 10

// tellRefusal tells of an answer to a write that is a refusal by the fence. Its body can be read as before.
func (w *Writes) tellRefusal(resp *http.Response) {
	if resp.StatusCode != http.StatusForbidden || resp.Body == nil {
		return
	}
	var text bytes.Buffer
	_, err := io.CopyN(&text, resp.Body, refusalLimit)
	if bytes.Contains(text.Bytes(), []byte(names.FenceRefusal)) {
		w.env.Fenced()
	}
	rest := io.Reader(resp.Body)
	if err != nil {
		rest = failing{err}
	}
	resp.Body = body{io.MultiReader(&text, rest), resp.Body}
}

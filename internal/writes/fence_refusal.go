package writes

import (
	"bytes"
	"io"
	"net/http"

	"github.com/rota-dev/rota/internal/names"
)

// refusalLimit limits the bytes of a refusal that are searched for the fence's message.
const refusalLimit = 8 << 10

// reportRefusal calls Fenced if the answer to a write is a refusal by the fence. The body can still be read.
func (w *Writes) reportRefusal(resp *http.Response) {
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

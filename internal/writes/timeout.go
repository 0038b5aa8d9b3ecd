package writes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lateQuiet is the shortest time between two log lines about writes that time out.
const lateQuiet = time.Minute

// lateText says that a write timed out, why its time was limited, and what to do.
func lateText(req *http.Request, timeout time.Duration) string {
	return fmt.Sprintf("%s %s was not done within %v: a member's writes have rota.Options.WriteTimeout, and no more than "+
		"is left of its Lease; where admission webhooks or the API server take longer, raise WriteTimeout, and FenceDelay "+
		"with it",
		req.Method, req.URL.Path, timeout.Round(time.Millisecond))
}

// unansweredText says that a write was sent and got no answer, why nobody waits any longer, and what to do.
func unansweredText(req *http.Request, waited time.Duration) string {
	return fmt.Sprintf("%s %s was sent, and got no answer within %v: a member waits for one as long as its Lease allows, "+
		"since the write may have taken effect; look for it before it is repeated, and see what keeps the API server or the "+
		"way to it", req.Method, req.URL.Path, waited.Round(time.Millisecond))
}

// timedOut counts a write that timed out, and logs it from time to time.
func (w *Writes) timedOut(text string) {
	w.env.Late()
	now := int64(w.env.Now())
	last := w.toldLate.Load()
	if last != 0 && time.Duration(now-last) < lateQuiet || !w.toldLate.CompareAndSwap(last, max(1, now)) {
		return
	}
	w.env.Log.Error(nil, "A write was not done in time; whether it took effect is unknown", "member", w.env.ID(), "cause",
		text)
}

// explained returns the answer of an API server or a proxy that gave a write up, with a message that says what to do.
// For programs it stays a timeout with status 504.
func explained(resp *http.Response, text string) *http.Response {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	answer, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code:   http.StatusGatewayTimeout,
		Reason: metav1.StatusReasonTimeout, Message: "Timeout: " + text,
	})
	if err != nil {
		answer = nil
	}
	out := *resp
	out.Header = resp.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header.Del("Content-Encoding")
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Content-Length", strconv.Itoa(len(answer)))
	out.ContentLength, out.Body = int64(len(answer)), io.NopCloser(bytes.NewReader(answer))
	return &out
}

package rota

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

// lateQuiet is how often it is logged that writes take longer than they may.
const lateQuiet = time.Minute

// lateText says that a write was not done in time, why it had no more, and what to do.
func lateText(req *http.Request, timeout time.Duration) string {
	return fmt.Sprintf("%s %s was not done within %v: a member's writes have rota.Options.WriteTimeout, and no more than is left of its Lease; "+
		"where admission webhooks or the API server take longer, raise WriteTimeout, and FenceDelay with it",
		req.Method, req.URL.Path, timeout.Round(time.Millisecond))
}

// timedOut counts a write that was not done in time, and tells now and then.
func (r *Rota) timedOut(req *http.Request, timeout time.Duration) {
	r.metrics.late.Inc()
	now := int64(r.now())
	last := r.toldLate.Load()
	if last != 0 && time.Duration(now-last) < lateQuiet || !r.toldLate.CompareAndSwap(last, max(1, now)) {
		return
	}
	r.log.Error(nil, "A write was not done in time; whether it took effect is unknown", "member", r.ID(), "cause", lateText(req, timeout))
}

// explained returns the answer of an API server, or of a proxy, that gave a write up, with a message that says what to
// do. It stays what it was for programs: a timeout, with status 504.
func explained(resp *http.Response, req *http.Request, timeout time.Duration) *http.Response {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close()
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout,
		Reason: metav1.StatusReasonTimeout, Message: "Timeout: " + lateText(req, timeout),
	})
	if err != nil {
		text = nil
	}
	out := *resp
	out.Header = resp.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header.Del("Content-Encoding")
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Content-Length", strconv.Itoa(len(text)))
	out.ContentLength, out.Body = int64(len(text)), io.NopCloser(bytes.NewReader(text))
	return &out
}

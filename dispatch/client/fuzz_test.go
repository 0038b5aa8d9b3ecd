package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// FuzzStream: whatever a connection brings, events are read or an error ends it, in bounded memory.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"stream":"s"}` + "\n\n{}\n" +
		`{"take":{"token":"t","kind":"K","name":"n","expiresInSeconds":1e300}}` + "\n"))
	f.Add([]byte(`{"end":"over","later":{"a":[1]}}` + "\n{"))
	f.Add(bytes.Repeat([]byte("x"), 5000))
	c, err := New(Options{URLs: []string{"http://d"}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, in []byte) {
		lines := bufio.NewReader(bytes.NewReader(in))
		for n := 0; ; n++ {
			e, err := readEvent(lines)
			if err != nil {
				if len(in) == 0 && !errors.Is(err, io.EOF) {
					t.Errorf("nothing at all: %v", err)
				}
				return
			}
			if n > bytes.Count(in, []byte("\n")) {
				t.Fatal("more events than lines")
			}
			if e.Take == nil {
				continue
			}
			take, err := c.newTake(time.Hour, e.Take)
			if err != nil {
				continue
			}
			if take.token == "" || take.Kind == "" || take.Name == "" {
				t.Errorf("a take without token, kind or name: %+v", e.Take)
			}
			if e.Take.ExpiresInSeconds > 0 && take.deadline.Load() < int64(time.Hour) {
				t.Errorf("expires in %v s: deadline %v", e.Take.ExpiresInSeconds, time.Duration(take.deadline.Load()))
			}
		}
	})
}

// FuzzProblem: any answer with an error is a Problem with the answer's status.
func FuzzProblem(f *testing.F) {
	f.Add(410, wire.TypeProblem, "3", []byte(`{"type":"https://rota.dev/problems/ended","status":200}`))
	f.Add(503, "text/html", "Wed, 21 Oct 2015 07:28:00 GMT", []byte("<html>"))
	f.Add(400, wire.TypeProblem+"; charset=utf-8", "-1", []byte(`{"type":3}`))
	f.Fuzz(func(t *testing.T, status int, kind, after string, body []byte) {
		p := problemOf(&http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {kind}, "Retry-After": {after}},
			Body: io.NopCloser(bytes.NewReader(body)),
		})
		if p.Status != status || p.RetryAfter < 0 || p.RetryAfter > maxRetryAfter || p.Error() == "" {
			t.Errorf("%+v", p)
		}
		if status == http.StatusServiceUnavailable && !p.temporary() {
			t.Error("503 is not temporary")
		}
	})
}

func FuzzSeconds(f *testing.F) {
	for _, s := range []float64{0, 1.5, -1, 1e300, -1e300, math.NaN(), math.Inf(1), math.Inf(-1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s float64) {
		d := seconds(s)
		if d > 0 && s < 0 || d < 0 && s > 0 || d > math.MaxInt64/2 || d < math.MinInt64/2 {
			t.Errorf("%v s: %v", s, d)
		}
		if raw, err := json.Marshal(d.Seconds()); err != nil {
			t.Errorf("%v s: %s, %v", s, raw, err)
		}
	})
}

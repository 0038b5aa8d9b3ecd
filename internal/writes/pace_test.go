package writes

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
)

// R2: writes that may be slow wait until the Lease has announced that. Others do not, and do not ask for it.
func TestLongWritesAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var long gate.LongWrites
		start := time.Now()
		now := func() time.Duration { return time.Since(start) }
		var asked []time.Duration
		w := New(Env{
			Now: now, Long: &long, Config: member.Config{WriteTimeout: 2 * time.Second},
			WantLong: func(until time.Duration) bool {
				asked = append(asked, until-now())
				return true
			},
		})
		of := pace{method: http.MethodPost}
		begin := func(wantWait time.Duration, wantLong bool) {
			t.Helper()
			begun := now()
			end := w.beginLong(t.Context(), of)
			if waited := now() - begun; waited != wantWait || (end != nil) != wantLong {
				t.Fatalf("it waited %v, long: %v; want %v, %v", waited, end != nil, wantWait, wantLong)
			}
			if end != nil {
				end()
			}
		}

		time.AfterFunc(10*time.Millisecond, long.Allow)
		begin(10*time.Millisecond, true)
		if fmt.Sprint(asked) != "[2s]" {
			t.Errorf("it asked for %v", asked)
		}
		long.Withdraw(func() {})
		time.Sleep(time.Minute)
		begin(2*time.Second, false) // nobody answers: it is sent as a short one

		w.paces.wasQuick(of, now())
		asked = nil
		begin(0, false)
		if len(asked) > 0 {
			t.Errorf("a quick write asked for %v", asked)
		}
		w.slow(of)
		if fmt.Sprint(asked) != "[1m0s]" {
			t.Errorf("a slow write asked for %v", asked)
		}
		long.Allow()
		begin(0, true)
		long.Withdraw(func() {})
		w.paces.wasQuick(of, now())
		time.Sleep(quickFor)
		begin(2*time.Second, false)
	})
}

// The API server resets the stream of a write whose time is over.
func TestWritesCutByTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending(t.Context(), Limits{SendWithin: time.Second, Timeout: 2 * time.Second, Patience: 10 * time.Second})
		defer s.over()
		s.wrote(nil)
		reset := fmt.Errorf("read: %w", http2.StreamError{StreamID: 5, Code: http2.ErrCodeInternal})
		if s.cutByServer(reset) {
			t.Error("a stream that was reset at once counts as one whose time was over")
		}
		time.Sleep(2 * time.Second)
		if !s.cutByServer(reset) || s.cutByServer(http2.StreamError{Code: http2.ErrCodeRefusedStream}) || s.cutByServer(nil) {
			t.Error("only an internal error is that of a write whose time was over")
		}
	})
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

func problemOfTake(kind string, status int) *wire.Problem {
	p := problemFor(kind)
	p.Status = status
	return &p
}

// testTakes returns takes with the tokens t0, t1, ….
func testTakes(c *Client, n int) (takes []*Take) {
	for i := range n {
		takes = append(takes, &Take{token: fmt.Sprint("t", i), client: c})
	}
	return takes
}

// Only what is not known to have ended is sent again, and the errors are those of the takes.
func TestDoneAllSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent []string
		c := newTestClient(t, func(path string, body []byte) (int, http.Header, any) {
			var in wire.DoneAllRequest
			if err := json.Unmarshal(body, &in); err != nil || path != wire.PathDone {
				t.Errorf("%s %s: %v", path, body, err)
			}
			var out wire.DoneAllResponse
			tokens := ""
			for _, k := range in.Takes {
				tokens += k.Token + k.Result + k.Reason + " "
				switch {
				case k.Token == "t1":
					out.Takes = append(out.Takes, wire.DoneAnswer{Problem: problemOfTake(wire.ProblemEnded, 410)})
				case k.Token == "t2" && len(sent) == 0:
					out.Takes = append(out.Takes, wire.DoneAnswer{Problem: problemOfTake(wire.ProblemUnavailable, 503)})
				default:
					out.Takes = append(out.Takes, wire.DoneAnswer{})
				}
			}
			sent = append(sent, tokens)
			return 200, nil, out
		})
		takes := testTakes(c, 4)
		errs := c.DoneAll(t.Context(), []Ending{
			{Take: takes[0]}, {Take: takes[1]}, {Take: takes[2], Result: Result{Retry: true, Reason: "no"}}, {Take: takes[3]},
		})
		require.Equal(t, "requests", []string{"t0ok t1ok t2retryno t3ok ", "t2retryno "}, sent)
		for i, err := range errs {
			if ended := errors.Is(err, ErrEnded); ended != (i == 1) || !ended && err != nil {
				t.Errorf("take %d: %v", i, err)
			}
		}
	})
}

// What does not fit into one request goes in several.
func TestDoneAllFits(t *testing.T) {
	for name, c := range map[string]struct {
		takes, least int
		reason       string
	}{
		"none": {0, 0, ""}, "few": {wire.MaxTakes, 1, ""}, "many": {2*wire.MaxTakes + 1, 3, ""},
		"long": {wire.MaxTakes, 5, strings.Repeat("<", wire.MaxReason)},
	} {
		t.Run(name, func(t *testing.T) {
			requests, got := 0, 0
			client := newTestClient(t, func(_ string, body []byte) (int, http.Header, any) {
				var in wire.DoneAllRequest
				if err := json.Unmarshal(body, &in); err != nil || len(body) > wire.MaxBody || len(in.Takes) > wire.MaxTakes {
					t.Errorf("%d bytes, %d takes: %v", len(body), len(in.Takes), err)
				}
				requests, got = requests+1, got+len(in.Takes)
				return 200, nil, wire.DoneAllResponse{Takes: make([]wire.DoneAnswer, len(in.Takes))}
			})
			var endings []Ending
			for _, k := range testTakes(client, c.takes) {
				endings = append(endings, Ending{k, Result{Retry: true, Reason: c.reason}})
			}
			for i, err := range client.DoneAll(t.Context(), endings) {
				if err != nil {
					t.Errorf("take %d: %v", i, err)
				}
			}
			if got != c.takes || requests < c.least || requests > c.least+1 {
				t.Errorf("%d takes in %d requests, want %d in %d", got, requests, c.takes, c.least)
			}
		})
	}
}

// Each take gets its own time, counted from the request; one that has ended keeps what it had.
func TestExtendAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClient(t, func(path string, body []byte) (int, http.Header, any) {
			if path != wire.PathExtend || !strings.Contains(string(body), `{"token":"t0","lengthSeconds":20}`) {
				t.Errorf("%s %s", path, body)
			}
			time.Sleep(time.Second)
			return 200, nil, wire.ExtendAllResponse{Takes: []wire.ExtendAnswer{
				{ExpiresInSeconds: 9}, {Problem: problemOfTake(wire.ProblemEnded, 410)}, {ExpiresInSeconds: 5, Draining: true},
			}}
		})
		takes := testTakes(c, 3)
		takes[1].expires(c.clock.Late(), 3)
		errs := c.ExtendAll(t.Context(), takes, 20*time.Second)
		if errs[0] != nil || !errors.Is(errs[1], ErrEnded) || errs[2] != nil {
			t.Errorf("errors %v", errs)
		}
		for i, want := range []time.Duration{8 * time.Second, 2 * time.Second, 4 * time.Second} {
			if left := takes[i].Remaining(); left != want || takes[i].Draining() != (i == 2) {
				t.Errorf("take %d: %v left, draining %v; want %v", i, left, takes[i].Draining(), want)
			}
		}
	})
}

// A request that fails as a whole is the error of each of its takes, and an answer that lacks takes is an error.
func TestDoneAllFails(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		answer any
		want   string
	}{
		"refused":    {400, problemFor(wire.ProblemInvalid), "invalid"},
		"incomplete": {200, wire.DoneAllResponse{Takes: []wire.DoneAnswer{{}}}, "1 answers for 2 takes"},
		"no answer":  {0, nil, "last error"},
		"unavailable": {200, wire.DoneAllResponse{Takes: []wire.DoneAnswer{
			{Problem: problemOfTake(wire.ProblemUnavailable, 503)}, {Problem: problemOfTake(wire.ProblemUnavailable, 503)},
		}}, "503"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := newTestClient(t, func(string, []byte) (int, http.Header, any) { return c.status, nil, c.answer })
				takes := testTakes(client, 2)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for i, err := range client.DoneAll(ctx, []Ending{{Take: takes[0]}, {Take: takes[1]}}) {
					if err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("take %d: %v, want %q", i, err, c.want)
					}
				}
			})
		})
	}
}

package workers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// kindOf is the type of a problem; "" if there is none.
func kindOf(p *wire.Problem) string {
	if p == nil {
		return ""
	}
	return strings.TrimPrefix(p.Type, wire.ProblemBase)
}

// TestSeveralTakes: one request ends or extends takes of any dispatchers, and each is answered as if it were alone.
func TestSeveralTakes(t *testing.T) {
	t.Parallel()
	x, all := newTier(t, 30*time.Second, 2)
	a, b, worker := all[0], all[1], x.user("worker", true)
	x.create(0, 40)
	// own takes keys of one dispatcher alone.
	own := func(at *replica, n int) []wire.Take {
		t.Helper()
		var out wire.TakeResponse
		ask := wire.TakeRequest{Worker: "w", Max: n}
		if err := x.alone(at, http.MethodPost, wire.PathTake, ask, &out); err != nil || len(out.Takes) != n {
			t.Fatalf("%d keys, %v", len(out.Takes), err)
		}
		return out.Takes
	}
	atA, atB := own(a, 3), own(b, 3)

	lost := strings.Replace(atA[0].Token, atA[0].Token[3:13], "AAAAAAAAAA", 1) // of a dispatcher that nobody knows
	var extended wire.ExtendAllResponse
	in := wire.ExtendAllRequest{}
	for _, token := range []string{atB[0].Token, atA[0].Token, "abc", lost, atB[1].Token, atA[1].Token} {
		in.Takes = append(in.Takes, wire.ExtendRequest{Token: token, LengthSeconds: 20})
	}
	require.NoError(t, post(t.Context(), worker, a.URL, wire.PathExtend, in, &extended))
	var got []string
	for _, e := range extended.Takes {
		if e.Problem == nil && (e.ExpiresInSeconds <= 0 || e.ExpiresInSeconds > 30) {
			t.Errorf("extended to %v s", e.ExpiresInSeconds)
		}
		got = append(got, kindOf(e.Problem))
	}
	require.Equal(t, "extended", []string{"", "", wire.ProblemInvalid, wire.ProblemEnded, "", ""}, got)

	ok := func(take wire.Take) wire.DoneRequest { return wire.DoneRequest{Token: take.Token} }
	retry := func(take wire.Take) wire.DoneRequest {
		return wire.DoneRequest{Token: take.Token, Result: wire.ResultRetry, Reason: strings.Repeat("\u2028", 15_000)}
	}
	done := func(at *replica, takes ...wire.DoneRequest) (out []string) {
		t.Helper()
		text, err := json.Marshal(wire.DoneAllRequest{Takes: takes})
		require.NoError(t, err)
		// In its short form, which a dispatcher passes on in a longer one.
		body := strings.ReplaceAll(string(text), `\u2028`, "\u2028")
		var answer wire.DoneAllResponse
		require.NoError(t, post(t.Context(), worker, at.URL, wire.PathDone, body, &answer))
		for _, d := range answer.Takes {
			out = append(out, kindOf(d.Problem))
		}
		return out
	}
	body, code := atA[2].Token[:len(atA[2].Token)-8], []byte(atA[2].Token[len(atA[2].Token)-8:])
	if code[0]++; code[0] > 'z' || code[0] < 'a' {
		code[0] = 'a'
	}
	forged := wire.Take{Token: body + string(code)} // the code does not fit
	for _, c := range []struct {
		what string
		got  []string
		want []string
	}{
		{"done", done(a, ok(atA[0]), ok(atB[0]), retry(atB[1])), []string{"", "", ""}},
		{"done again, as before and otherwise", done(b, ok(atA[0]), ok(atB[0]), ok(atB[1]), ok(atA[1])),
			[]string{"", "", wire.ProblemEnded, ""}},
		{"one is not for this user", done(a, ok(atA[2]), ok(forged), ok(atB[2])),
			[]string{"", wire.ProblemForbidden, ""}},
	} {
		require.Equal(t, c.what, c.want, c.got)
	}
}

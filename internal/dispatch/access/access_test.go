package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

const audience = "rota.dev/dispatch"

// server answers TokenReviews: tokens that begin with "good" are valid.
type server struct {
	*fake.Clientset
	asked atomic.Int32
	down  atomic.Bool
	wait  time.Duration
	// audiences are those that it confirms.
	audiences []string
	revoked   atomic.Bool
}

func newServer() *server {
	s := &server{Clientset: fake.NewClientset(), audiences: []string{audience}}
	s.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.asked.Add(1)
		time.Sleep(s.wait)
		if s.down.Load() {
			return true, nil, errors.New("connection refused")
		}
		create, _ := a.(clienttesting.CreateAction)
		review, _ := create.GetObject().(*authenticationv1.TokenReview)
		if strings.HasPrefix(review.Spec.Token, "good") && !s.revoked.Load() {
			review.Status = authenticationv1.TokenReviewStatus{
				Authenticated: true, Audiences: s.audiences,
				User: authenticationv1.UserInfo{
					Username: "user-" + review.Spec.Token, UID: "1", Groups: []string{"g"},
					Extra: map[string]authenticationv1.ExtraValue{"pod": {"p"}},
				},
			}
		} else {
			review.Status = authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
		}
		return true, review, nil
	})
	return s
}

func (s *server) guard(t *testing.T, limits Limits) *Guard {
	t.Helper()
	g, err := newGuard(s, nil, Options{Audience: audience, Limits: limits, Logger: logr.Discard()})
	require.NoError(t, err)
	return g
}

func request(address string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, wire.PathTake, nil)
	r.RemoteAddr = address + ":1234"
	for _, h := range headers {
		r.Header.Add("Authorization", h)
	}
	return r
}

// problem returns the problem of an error, or "".
func problem(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Problem
	}
	if err != nil {
		return "another error: " + err.Error()
	}
	return ""
}

func TestHeaders(t *testing.T) {
	s := newServer()
	g := s.guard(t, Limits{})
	for _, c := range []struct {
		headers []string
		want    string
	}{
		{nil, "no bearer token"},
		{[]string{"Bearer"}, "no bearer token"},
		{[]string{"Bearer "}, "no bearer token"},
		{[]string{"Basic good"}, "no bearer token"},
		{[]string{"good"}, "no bearer token"},
		{[]string{"Bearer good", "Bearer good"}, "several headers"},
		{[]string{"Bearer good bad"}, "characters"},
		{[]string{"Bearer goodü"}, "characters"},
		{[]string{"Bearer good\x00"}, "characters"},
		{[]string{"Bearer good" + strings.Repeat("a", maxToken)}, "longer than"},
		{[]string{"Bearer bad"}, "invalid bearer token"},
		{[]string{"Bearer good"}, ""},
		{[]string{"bearer  good"}, ""},
	} {
		user, err := g.Authenticate(request("10.0.0.1", c.headers...))
		switch {
		case c.want == "" && (err != nil || user.Name != "user-good" || user.UID != "1" || user.Extra["pod"][0] != "p"):
			t.Errorf("%q: user %v, error %v", c.headers, user, err)
		case c.want != "" && (problem(err) != wire.ProblemUnauthenticated || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), audience)):
			t.Errorf("%.80q: error %v, want one with %q", c.headers, err, c.want)
		}
	}
	if n := s.asked.Load(); n != 2 {
		t.Errorf("the API server was asked %d times, want 2", n)
	}
}

// An API server that does not confirm the audience may have accepted a token for another one.
func TestAudienceMustBeConfirmed(t *testing.T) {
	for _, audiences := range [][]string{nil, {}, {"https://kubernetes.default.svc"}} {
		s := newServer()
		s.audiences = audiences
		if _, err := s.guard(t, Limits{}).Authenticate(request("10.0.0.1", "Bearer good")); problem(err) !=
			wire.ProblemUnauthenticated || !strings.Contains(err.Error(), "does not confirm") {
			t.Errorf("confirmed %q: error %v", audiences, err)
		}
	}
	if _, err := newGuard(newServer(), nil, Options{}); err == nil || !strings.Contains(err.Error(), "Audience") {
		t.Errorf("no audience: error %v", err)
	}
}

// One review is made of a token that many requests have, and another one each minute, for which no request waits.
func TestReviewsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.wait = time.Second
		g := s.guard(t, Limits{})
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				if _, err := g.Authenticate(request("10.0.0.1", "Bearer good")); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := s.asked.Load(); n != 1 {
			t.Errorf("asked %d times, want once", n)
		}
		begun := time.Now()
		for time.Since(begun) < 5*time.Minute {
			at := time.Now()
			if _, err := g.Authenticate(request("10.0.0.1", "Bearer good")); err != nil || time.Since(at) > 0 {
				t.Fatalf("after %v: waited %v: error %v", time.Since(begun), time.Since(at), err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(s.wait)
		if n := s.asked.Load(); n < 5 || n > 6 {
			t.Errorf("asked %d times in 5 minutes", n)
		}
	})
}

// A token that was taken back is refused after two minutes at most, and whoever leaves while its token is reviewed does not
// wait.
func TestRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		g := s.guard(t, Limits{})
		r := request("10.0.0.1", "Bearer good")
		_, err := g.Authenticate(r)
		require.NoError(t, err)
		s.revoked.Store(true)
		time.Sleep(tokenTTL)
		if _, err := g.Authenticate(r); problem(err) != wire.ProblemUnauthenticated {
			t.Errorf("error %v", err)
		}
		s.revoked.Store(false)
		time.Sleep(rejectedTTL + time.Second)
		s.wait = 5 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		at := time.Now()
		if _, err := g.Authenticate(r.WithContext(ctx)); problem(err) != wire.ProblemUnavailable || time.Since(at) > time.Second {
			t.Errorf("after %v: error %v", time.Since(at), err)
		}
		time.Sleep(s.wait)
	})
}

// While the API server is down, tokens that were valid are accepted for two minutes, and others are not refused for good.
func TestServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		g := s.guard(t, Limits{})
		known, other := request("10.0.0.1", "Bearer good"), request("10.0.0.1", "Bearer good-2")
		_, err := g.Authenticate(known)
		require.NoError(t, err)
		s.down.Store(true)
		for range tokenTTL/time.Second - 1 {
			time.Sleep(time.Second)
			_, err := g.Authenticate(known)
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		for _, r := range []*http.Request{known, other} {
			_, err := g.Authenticate(r)
			var e *Error
			if problem(err) != wire.ProblemUnavailable || !errors.As(err, &e) || e.RetryAfter <= 0 {
				t.Errorf("error %v", err)
			}
		}
		s.down.Store(false)
		for _, r := range []*http.Request{known, other} {
			if _, err := g.Authenticate(r); err != nil {
				t.Error(err)
			}
		}
	})
}

// Random tokens reach the API server at a limited rate, are not kept without bound, and do not keep out those whose
// tokens have been valid, even if these have to be asked about again, or are renewed.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		g := s.guard(t, Limits{Reviews: 50})
		known := request("10.0.0.1", "Bearer good")
		_, err := g.Authenticate(known)
		require.NoError(t, err)
		const seconds, each = 60, 1000
		outcomes := map[string]int{}
		for second := range seconds {
			for i := range each {
				address := fmt.Sprintf("10.%d.%d.%d", 1+i%7, second%256, i%256)
				_, err := g.Authenticate(request(address, "Bearer random-"+strconv.Itoa(second*each+i)))
				outcomes[problem(err)]++
			}
			if _, err := g.Authenticate(known); err != nil {
				t.Fatalf("after %d s: %v", second, err)
			}
			if _, err := g.Authenticate(request("10.0.0.1", "Bearer good-"+strconv.Itoa(second))); err != nil {
				t.Fatalf("a token that was renewed after %d s: %v", second, err)
			}
			time.Sleep(time.Second)
		}
		most := 50*seconds + 4*50 + 2*seconds // the burst, and the reviews of the known ones
		if n := int(s.asked.Load()); n > most {
			t.Errorf("asked %d times, want at most %d", n, most)
		}
		if outcomes[wire.ProblemUnavailable] == 0 || outcomes[""] != 0 || len(outcomes) > 3 {
			t.Errorf("outcomes %v", outcomes)
		}
		if a, b := len(g.rejected.Keys()), len(g.addresses.Keys()); a > remembered || b > remembered {
			t.Errorf("%d tokens and %d addresses are kept", a, b)
		}
		t.Logf("%v, %d reviews", outcomes, s.asked.Load())
	})
}

// An address that keeps sending tokens that are not valid is told to wait. Others are not.
func TestAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		g := s.guard(t, Limits{})
		for i := range 3 * addressBurst {
			_, err := g.Authenticate(request("10.0.0.9", "Bearer random-"+strconv.Itoa(i)))
			want := wire.ProblemUnauthenticated
			if i >= addressBurst {
				want = wire.ProblemTooMany
			}
			if problem(err) != want {
				t.Fatalf("token %d: error %v, want %s", i, err, want)
			}
		}
		good := request("10.0.0.9", "Bearer good")
		_, err := g.Authenticate(good)
		var e *Error
		if !errors.As(err, &e) || e.Problem != wire.ProblemTooMany || e.RetryAfter <= 0 || e.RetryAfter > time.Second {
			t.Fatalf("error %v", err)
		}
		if _, err := g.Authenticate(request("10.0.0.8", "Bearer good-2")); err != nil {
			t.Error(err)
		}
		time.Sleep(e.RetryAfter)
		for i := range 4 * addressBurst { // valid ones do not count
			_, err := g.Authenticate(request("10.0.0.9", "Bearer good-"+strconv.Itoa(i)))
			require.NoError(t, err)
			time.Sleep(20 * time.Millisecond)
		}
		if n := s.asked.Load(); n != addressBurst+1+4*addressBurst-1 {
			t.Errorf("asked %d times", n) // good-2 was known
		}
	})
}

// jwt is a token that says for whom it is, and when it expires.
func jwt(signature, audience string, expires time.Time) string {
	text := fmt.Sprintf(`{"aud": [%q], "exp": %d}`, audience, expires.Unix())
	return "good." + base64.RawURLEncoding.EncodeToString([]byte(text)) + "." + signature
}

// TestProxy: where everybody comes from one address, as behind a proxy, tokens that are random, expired, or for another
// audience do not have new ones refused that are good.
func TestProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		g := s.guard(t, Limits{})
		soon := time.Now().Add(time.Hour)
		for i := range 3 * addressBurst {
			n := strconv.Itoa(i)
			for _, bad := range []string{
				"random-" + n, "bad." + jwt(n, audience, soon), "bad" + jwt(n, audience, time.Now().Add(-time.Hour)),
				"bad" + jwt(n, "https://kubernetes.default.svc", soon),
			} {
				if _, err := g.Authenticate(request("10.0.0.9", "Bearer "+bad)); err == nil {
					t.Fatalf("%s is accepted", bad)
				}
			}
		}
		_, err := g.Authenticate(request("10.0.0.9", "Bearer random"))
		if problem(err) != wire.ProblemTooMany {
			t.Fatalf("a random token: error %v", err)
		}
		for i := range 20 {
			_, err := g.Authenticate(request("10.0.0.9", "Bearer "+jwt(strconv.Itoa(i), audience, soon)))
			if err != nil {
				t.Fatalf("a good token, the %dth: %v", i, err)
			}
		}
		// Forged ones count, too, against a limit of their own.
		for i := range 3 * addressBurst {
			_, err = g.Authenticate(request("10.0.0.9", "Bearer bad"+jwt(strconv.Itoa(i), audience, soon)))
		}
		if problem(err) != wire.ProblemTooMany {
			t.Errorf("a forged token: error %v", err)
		}
	})
}

// TestExpiry: a token that has expired since it was reviewed is reviewed again before it is accepted.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		g := s.guard(t, Limits{})
		end := time.Now().Add(30 * time.Second)
		r := request("10.0.0.1", "Bearer "+jwt("x", audience, end))
		for time.Now().Before(end) {
			_, err := g.Authenticate(r)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		if n := s.asked.Load(); n != 1 {
			t.Errorf("asked %d times before it expired", n)
		}
		// The API server's clock is behind. What it says is kept.
		for range 10 {
			_, err := g.Authenticate(r)
			require.NoError(t, err)
		}
		if n := s.asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		g := s.guard(t, Limits{})
		r := request("10.0.0.1", "Bearer "+jwt("x", audience, time.Now().Add(30*time.Second)))
		_, err := g.Authenticate(r)
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		s.revoked.Store(true)
		if _, err := g.Authenticate(r); problem(err) != wire.ProblemUnauthenticated {
			t.Errorf("after its time: error %v", err)
		}
	})
}

// TestClaims: whatever a token says of itself, reading it does no harm.
func TestClaims(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	token := func(claims string) string { return "a." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".b" }
	for text, want := range map[string]bool{
		token(`{"aud": "rota.dev/dispatch"}`):                             true,
		token(`{"aud": ["x", "rota.dev/dispatch"], "exp": 1700000001.5}`): true,
		token(`{"aud": ["rota.dev/dispatch"], "exp": 1699999999}`):        true, // clocks differ
		token(`{"aud": ["rota.dev/dispatch"], "exp": 1699999000}`):        false,
		token(`{"aud": ["rota.dev/dispatch"], "exp": "soon"}`):            false,
		token(`{"aud": ["rota.dev/dispatch"], "exp": 1e300}`):             true,
		token(`{"aud": ["rota.dev/dispatch"], "exp": -1}`):                true,
		token(`{"aud": {}}`):    false,
		token(`{"aud": ["x"]}`): false,
		token(`null`):           false,
		token(`[`):              false,
		"a.!.b":                 false,
		"..":                    false,
		"opaque":                false,
	} {
		if got := looksValid(text, audience, now); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServer().guard(t, Limits{Rate: 10, Burst: 20, UnderWay: 5, Total: 8})
		var releases []func()
		admit := func(name, want string) {
			t.Helper()
			release, err := g.Admit(User{Name: name})
			if problem(err) != want {
				t.Fatalf("%s: error %v, want %q", name, err, want)
			}
			if err == nil {
				releases = append(releases, release)
				return
			}
			var e *Error
			if errors.As(err, &e); e.RetryAfter <= 0 || release != nil {
				t.Errorf("%s: %v: retry after %v", name, err, e.RetryAfter)
			}
		}
		end := func() {
			for _, release := range releases {
				release()
				release() // does nothing
			}
			releases = nil
		}
		for range 5 {
			admit("a", "")
		}
		admit("a", wire.ProblemTooMany)
		for range 3 {
			admit("b", "")
		}
		admit("c", wire.ProblemUnavailable)
		end()
		for range 15 {
			admit("a", "")
			end()
		}
		admit("a", wire.ProblemTooMany) // the burst is used up
		admit("b", "")
		end()
		time.Sleep(100 * time.Millisecond)
		admit("a", "")
		admit("a", wire.ProblemTooMany)
		end()
		if g.total != 0 || g.users["a"].underWay != 0 || g.users["b"].underWay != 0 {
			t.Errorf("%d under way", g.total)
		}
	})
}

// The number of users that are counted is bounded, and a user does not get more by having others come.
func TestManyUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newServer().guard(t, Limits{Rate: 1, Burst: 2})
		release, err := g.Admit(User{Name: "busy"})
		require.NoError(t, err)
		refused := 0
		for i := range 2 * maxUsers {
			if release, err := g.Admit(User{Name: "user-" + strconv.Itoa(i)}); err == nil {
				release()
			} else if problem(err) == wire.ProblemUnavailable {
				refused++
			} else {
				t.Fatal(err)
			}
		}
		if len(g.users) > maxUsers || refused != maxUsers+1 {
			t.Errorf("%d users, %d were refused", len(g.users), refused)
		}
		time.Sleep(2 * time.Second)
		if _, err := g.Admit(User{Name: "another"}); err != nil {
			t.Error(err)
		}
		if len(g.users) != 2 || g.users["busy"].underWay != 1 {
			t.Errorf("%d users, busy has %+v", len(g.users), g.users["busy"])
		}
		release()
	})
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		want   string
	}{
		{Limits{}, ""},
		{Limits{Rate: 0.1}, ""},
		{Limits{Rate: -1}, "rate -1"},
		{Limits{Rate: math.NaN()}, "rate NaN"},
		{Limits{Rate: math.Inf(1)}, "rate +Inf"},
		{Limits{Burst: -1}, "burst -1"},
		{Limits{UnderWay: -1}, "underWay -1"},
		{Limits{UnderWay: 10, Total: 9}, "total 9"},
		{Limits{Reviews: -0.5}, "reviews -0.5"},
	} {
		if err := c.limits.Validate(); c.want == "" && err != nil ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: error %v, want %q", c.limits, err, c.want)
		}
	}
}

// FuzzBearer: whatever the header is, a token reaches the API server only if it is one by its form.
func FuzzBearer(f *testing.F) {
	for _, header := range []string{"Bearer good", "bearer  a.b-c", "Bearer \x00", "Basic a", "Bearer a b", "", "Bearer"} {
		f.Add(header)
	}
	g, err := newGuard(newServer(), nil, Options{Audience: audience, Logger: logr.Discard()})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, header string) {
		token, problem := g.bearer(request("10.0.0.1", header))
		form := len(token) > 0 && len(token) <= maxToken && !strings.ContainsFunc(token, notOfToken)
		if (problem == nil) != form {
			t.Errorf("%q: token %q, error %v", header, token, problem)
		}
		if problem == nil && !strings.HasSuffix(strings.TrimRight(header, " "), token) {
			t.Errorf("%q: token %q", header, token)
		}
	})
}

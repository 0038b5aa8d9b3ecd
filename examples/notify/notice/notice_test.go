package notice

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var example = Notice{
	ID: "4711-2-failing", Type: Failing, Reason: CrashLoopBackOff, Message: "container main:\nback-off <5m>",
	Object: Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "4711"},
	Time:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		name string
		form func(string) ([]byte, error)
		want string
	}{
		{"CloudEvents", example.CloudEvent, `{"specversion":"1.0","id":"4711-2-failing","source":"//eu-1",` +
			`"type":"com.example.notify.failing","subject":"shop/Pod/web-1","time":"2026-01-02T03:04:05Z",` +
			`"datacontenttype":"application/json","data":{"object":{"apiVersion":"v1","kind":"Pod","namespace":"shop",` +
			`"name":"web-1","uid":"4711"},"reason":"CrashLoopBackOff","message":"container main:\nback-off \u003c5m\u003e"}}`},
		// JSON escapes the ampersands of Slack's own escapes once more.
		{"Slack", example.Slack, `{"text":"*failing*: Pod shop/web-1: CrashLoopBackOff\n\u003e container main: back-off ` +
			`\u0026lt;5m\u0026gt;\n_//eu-1, 2026-01-02T03:04:05Z_"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.form("//eu-1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSign has the example of the specification of Standard Webhooks.
func TestSign(t *testing.T) {
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := Sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, bad := range []string{"", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_short", "whsec_?", "whsec_c2hvcnQ="} {
		if _, err := ParseSecret(bad); err == nil || strings.Contains(err.Error(), "short") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

var digest = Digest{
	ID: "ops-notify-digest-2026-01-02", Time: time.Date(2026, 1, 2, 7, 0, 0, 0, time.UTC),
	Summary: Summary{
		Day: "2026-01-02", Timezone: "Europe/Berlin", Failing: 3,
		Namespaces: []Count{{Namespace: "shop", Failing: 2, Reasons: map[string]int{Unavailable: 1, CrashLoopBackOff: 1}}},
		Objects: []Failure{{
			Object: Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "4711"},
			Reason: CrashLoopBackOff, Since: time.Date(2026, 1, 1, 23, 30, 0, 0, time.UTC),
		}},
		MoreNamespaces: 1, MoreObjects: 2,
	},
}

func TestDigest(t *testing.T) {
	calm := Digest{ID: "a", Time: digest.Time, Summary: Summary{Day: "2026-01-02", Timezone: "UTC"}}
	for _, c := range []struct {
		name string
		form func(string) ([]byte, error)
		want string
	}{
		{"CloudEvents", digest.CloudEvent, `{"specversion":"1.0","id":"ops-notify-digest-2026-01-02","source":"//eu-1<",` +
			`"type":"com.example.notify.digest","subject":"2026-01-02","time":"2026-01-02T07:00:00Z",` +
			`"datacontenttype":"application/json","data":{"day":"2026-01-02","timezone":"Europe/Berlin","failing":3,` +
			`"namespaces":[{"namespace":"shop","failing":2,"reasons":{"CrashLoopBackOff":1,"Unavailable":1}}],"moreNamespaces":1,` +
			`"objects":[{"object":{"apiVersion":"v1","kind":"Pod","namespace":"shop","name":"web-1","uid":"4711"},` +
			`"reason":"CrashLoopBackOff","since":"2026-01-01T23:30:00Z"}],"moreObjects":2}}`},
		{"Slack", digest.Slack, `{"text":"*digest*: Friday 2 January 2026: 3 failing objects in 2 namespaces\n` +
			`• shop: 1 CrashLoopBackOff, 1 Unavailable\n• and 1 more\nFailing for longest:\n` +
			`• Pod shop/web-1: CrashLoopBackOff since 2026-01-02 00:30\n• and 2 more\n_//eu-1&lt;, 2026-01-02 08:00 CET_"}`},
		{"Slack, nothing", calm.Slack, `{"text":"*digest*: Friday 2 January 2026: nothing fails\n_//eu-1&lt;, 2026-01-02 07:00 UTC_"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.form("//eu-1<")
			if err != nil {
				t.Fatal(err)
			}
			plain := strings.NewReplacer(`\u0026`, "&", `\u003c`, "<").Replace(string(got))
			if diff := cmp.Diff(c.want, plain); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

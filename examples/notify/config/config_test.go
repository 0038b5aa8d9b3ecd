package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/examples/notify/notice"
)

const good = `
source: //clusters.example.com/eu-1
kinds:
- apiVersion: v1
  kind: Pod
  events: [failing]
destinations:
- name: audit
  webhook: {url: "https://example.com/hook"}
`

func TestDefaults(t *testing.T) {
	c, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Destinations[0]
	if c.Name != "notify" || d.Rate != 1 || d.Burst != 10 || d.Timeout != 5*time.Second || d.Backoff.Min != time.Second ||
		d.Backoff.Max != time.Minute {
		t.Errorf("got %+v", c)
	}
	if k := c.Kinds[0]; !k.WantsReason(notice.CrashLoopBackOff) || k.Wants(notice.Created) || !d.Wants(notice.Created) {
		t.Errorf("got %+v", k)
	}
}

// TestRefused: an error names the line or the object, what is wrong and what to do.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, old, changed, want string }{
		{"unknown field", "source:", "sauce:", "line 2: field sauce not found"},
		{"unknown field of a kind", "  events: [failing]", "  event: [failing]", "line 6: field event not found"},
		{"wrong type", "[failing]", "7", "line 6: cannot unmarshal"},
		{"not YAML", good, "a: [", "yaml: line 1"},
		{"empty", good, "", "it is empty: name kinds and destinations"},
		{"two documents", "source:", "---\nsource:", ""},
		{"second document", good, good + "---\na: b\n", "second document in it: remove"},
		{"no source", "source: //clusters.example.com/eu-1", "", `source "": name the cluster`},
		{"unknown event", "[failing]", "[fails]", `kind "Pod" of "v1": event "fails" is not known: use some of created,`},
		{"no event", "[failing]", "[]", `kind "Pod" of "v1": events: there is none`},
		{"no kind", "kind: Pod", "kind: ''", "apiVersion or kind is missing"},
		{"unknown reason", "[failing]", "[failing]\n  reasons: [OOM]", `reason "OOM" is not known: use some of CrashLoopBackOff,`},
		{"reasons of nothing", "[failing]", "[created]\n  reasons: [JobFailed]", "reasons are for the event failing"},
		{"cannot fail", "kind: Pod", "kind: Service", "it is not known when such objects fail: remove the event"},
		{"pattern", "[failing]", "[failing]\n  namespaces: [shop-*]", `namespace "shop-*" cannot exist`},
		{"twice", "kinds:", "kinds:\n- {apiVersion: v1, kind: Pod, events: [created]}", `kind "Pod" of "v1": it is there twice`},
		{"no form", `webhook: {url: "https://example.com/hook"}`, "", `destination "audit": it needs either webhook or slack`},
		{"two forms", "  webhook:", "  slack: {url: https://a.b}\n  webhook:", "either webhook or slack"},
		{"no url", `{url: "https://example.com/hook"}`, "{}", "give either url or urlFile"},
		{"url", "https://example.com/hook", "example.com/hook", `destination "audit": its url is not one: write https://`},
		{"url file", `url: "https://example.com/hook"`, "urlFile: /there/is/none", "urlFile: open /there/is/none"},
		{"backoff", "- name: audit", "- name: audit\n  backoff: {min: 2m, max: 1s}", "max 1s is below min 2m0s"},
		{"negative", "- name: audit", "- name: audit\n  rate: -1", "must not be negative"},
		{"names", "destinations:", "destinations:\n- {name: audit, slack: {url: https://a.b}}", "another one of that name"},
		{"name", "name: audit", "name: The Audit", `destination "The Audit": give it a name of`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(good, c.old, c.changed, 1)
			_, err := Parse([]byte(text))
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestSecrets: URLs and secrets come from files, and errors do not show them.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url := write("url", "https://example.com/services/T0\n")
	text := strings.Replace(good, `url: "https://example.com/hook"`,
		"urlFile: "+url+", secretFile: "+write("secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 1)
	file := write("notify.yaml", text)
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Destinations[0]; d.URL() != "https://example.com/services/T0" || len(d.Webhook.Secret) != 24 {
		t.Errorf("got %+v", d.Webhook)
	}
	write("secret", "hunter2")
	if _, err := Load(file); err == nil || strings.Contains(err.Error(), "hunter2") ||
		!strings.Contains(err.Error(), "make one with") || !strings.HasPrefix(err.Error(), file) {
		t.Errorf("got %v", err)
	}
	write("url", "hunter2")
	if _, err := Load(file); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

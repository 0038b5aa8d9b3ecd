// Package notify has the test of the example's files; the notifier is in stock and sharded.
package notify

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/examples/internal/lines"
	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// TestFifteenLines: the notifier becomes sharded in at most fifteen lines, one of them for its duty, and the README
// shows them. What goes is leader election.
func TestFifteenLines(t *testing.T) { lines.Few(t, 15, 24) }

// TestSample: the digest in the README looks as it is sent.
func TestSample(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	failure := func(kind, name, reason, since string) notice.Failure {
		return notice.Failure{Object: notice.Object{Kind: kind, Namespace: "shop", Name: name}, Reason: reason, Since: at(since)}
	}
	body, err := notice.Digest{Time: at("2026-01-02T07:00:00Z"), Summary: notice.Summary{
		Day: "2026-01-02", Timezone: "Europe/Berlin", Failing: 57,
		Namespaces: []notice.Count{
			{Namespace: "shop", Failing: 41, Reasons: map[string]int{notice.CrashLoopBackOff: 39, notice.Unavailable: 2}},
			{Namespace: "payment", Failing: 16, Reasons: map[string]int{notice.ImagePullBackOff: 1, notice.JobFailed: 15}},
		},
		Objects: []notice.Failure{
			failure("Deployment", "cart", notice.Unavailable, "2025-12-29T16:02:11Z"),
			failure("Pod", "web-1", notice.CrashLoopBackOff, "2026-01-01T23:30:00Z"),
		},
		MoreObjects: 55,
	}}.Slack("//clusters.example.com/eu-1")
	if err != nil {
		t.Fatal(err)
	}
	var payload struct{ Text string }
	if err := json.Unmarshal(body, &payload); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```text\n"+payload.Text+"\n```") {
		t.Errorf("README.md does not show the digest that looks like this:\n%s", payload.Text)
	}
}

// TestREADME: the configuration in the README is one.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{
		"webhook-secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAAAA\n", "slack-url": "https://hooks.slack.com/services/T0/B0/x\n",
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Parse([]byte(strings.ReplaceAll(text, "/etc/notify/", "")))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Kinds) == 0 || len(c.Destinations) != 2 || c.Digest == nil {
		t.Errorf("got %+v", c)
	}
}

// Package notify has the test of the example's files; the notifier is in stock and sharded.
package notify

import (
	"os"
	"strings"
	"testing"

	"github.com/rota-dev/rota/examples/internal/lines"
	"github.com/rota-dev/rota/examples/notify/config"
)

// TestFourteenLines: the notifier becomes sharded in at most fourteen lines, and the README shows them. What goes is
// leader election.
func TestFourteenLines(t *testing.T) { lines.Few(t, 14, 24) }

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
	if len(c.Kinds) == 0 || len(c.Destinations) != 2 {
		t.Errorf("got %+v", c)
	}
}

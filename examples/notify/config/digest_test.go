package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const withDigest = good + `
- name: ops
  slack: {url: "https://example.com/chat"}
  events: [deleted]
digest:
  at: "08:05"
  timezone: Europe/Berlin
  destinations: [ops]
`

func TestDigest(t *testing.T) {
	c, err := Parse([]byte(withDigest))
	if err != nil {
		t.Fatal(err)
	}
	d := c.Digest
	if d.After != 8*time.Hour+5*time.Minute || d.Location.String() != "Europe/Berlin" || !slices.Equal(d.Destinations, []string{"ops"}) {
		t.Errorf("got %+v", d)
	}
	c, err = Parse([]byte(good + "digest: {at: 10:30}")) // in YAML 1.1, that was 630
	if err != nil {
		t.Fatal(err)
	}
	d = c.Digest
	if d.After != 10*time.Hour+30*time.Minute || d.Location != time.UTC || !slices.Equal(d.Destinations, []string{"audit"}) {
		t.Errorf("got %+v", d)
	}
	if c, err = Parse([]byte(good)); err != nil || c.Digest != nil {
		t.Errorf("got %+v, %v, want no digest", c.Digest, err)
	}
}

// TestDigestRefused: errors name the file, the field, what is wrong and what to do.
func TestDigestRefused(t *testing.T) {
	for _, c := range []struct{ name, old, changed, want string }{
		{"no time", `  at: "08:05"`, "", `digest: at "": write the local time of day from 00:00 to 23:59, such as "08:00"`},
		{"time", `"08:05"`, `"8 o'clock"`, `digest: at "8 o'clock": write`},
		{"midnight", `"08:05"`, `"24:00"`, `digest: at "24:00": write`},
		{"zone", "Europe/Berlin", "Europe/Bonn", `digest: timezone "Europe/Bonn" is not known: use a name of the IANA`},
		{"zone of the machine", "Europe/Berlin", "Local", `digest: timezone "Local" is not known`},
		{"path", "Europe/Berlin", "../passwd", `digest: timezone "../passwd" is not known`},
		{"destination", "[ops]", "[ops, opps]", `digest: destination "opps" is not one: use names of those under destinations`},
		{"twice", "[ops]", "[ops, ops]", `digest: destination "ops": it is there twice`},
		{"nothing to tell", "[failing]", "[created]", "digest: no kind has the event failing"},
		{"unknown field", "timezone:", "timeZone:", "line 16: field timeZone not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "notify.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(withDigest, c.old, c.changed, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(file)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), file) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

package notice

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// DigestType is the type of digests. It is none of Types: kinds and destinations do not choose it.
const DigestType Type = "digest"

// Digest tells once a day what fails.
type Digest struct {
	// ID is the same whenever and by whomever the digest of a day is sent.
	ID string `json:"id"`
	// Time is when the objects were looked at.
	Time time.Time `json:"time"`
	Summary
}

// Summary says what fails. Its lists are bounded, and say how much they leave out.
type Summary struct {
	Day      string `json:"day"` // the local day, such as 2026-01-02
	Timezone string `json:"timezone"`
	Failing  int    `json:"failing"` // objects
	// Namespaces are those with the most objects that fail. MoreNamespaces others have some, too.
	Namespaces     []Count `json:"namespaces"`
	MoreNamespaces int     `json:"moreNamespaces"`
	// Objects are those that have failed for longest. MoreObjects others fail, too.
	Objects     []Failure `json:"objects"`
	MoreObjects int       `json:"moreObjects"`
}

// Count is how many objects of a namespace fail.
type Count struct {
	Namespace string         `json:"namespace"`
	Failing   int            `json:"failing"`
	Reasons   map[string]int `json:"reasons"`
}

// Failure is an object that fails.
type Failure struct {
	Object Object    `json:"object"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Head returns what distinguishes the digest from others, and since when it waits to be told.
func (d Digest) Head() (id string, at time.Time) { return d.ID, d.Time }

// CloudEvent returns the digest as a CloudEvent in structured mode.
func (d Digest) CloudEvent(source string) ([]byte, error) {
	return json.Marshal(event{
		SpecVersion: "1.0", ID: d.ID, Source: source, Type: typePrefix + string(DigestType), Subject: d.Day,
		Time: d.Time.UTC(), DataContentType: "application/json", Data: d.Summary,
	})
}

// Slack returns the digest as the payload of an incoming webhook of Slack. Times are local.
func (d Digest) Slack(source string) ([]byte, error) {
	day, err := time.Parse(time.DateOnly, d.Day)
	if err != nil {
		return nil, fmt.Errorf("digest %s: %w", d.ID, err)
	}
	in, err := time.LoadLocation(d.Timezone)
	if err != nil {
		return nil, fmt.Errorf("digest %s: %w", d.ID, err)
	}
	text := &strings.Builder{}
	line := func(format string, args ...any) { text.WriteString(slackEscape.Replace(fmt.Sprintf(format, args...))) }
	line("*%s*: %s: ", DigestType, day.Format("Monday 2 January 2006"))
	if d.Failing == 0 {
		line("nothing fails")
	} else {
		line("%s in %s", plural(d.Failing, "failing object"), plural(len(d.Namespaces)+d.MoreNamespaces, "namespace"))
	}
	for _, c := range d.Namespaces {
		line("\n• %s: %s", c.Namespace, c)
	}
	if d.MoreNamespaces > 0 {
		line("\n• and %d more", d.MoreNamespaces)
	}
	if d.Failing > 0 {
		line("\nFailing for longest:")
	}
	for _, f := range d.Objects {
		line("\n• %s: %s since %s", f.Object, f.Reason, f.Since.In(in).Format("2006-01-02 15:04"))
	}
	if d.MoreObjects > 0 {
		line("\n• and %d more", d.MoreObjects)
	}
	line("\n_%s, %s_", source, d.Time.In(in).Format("2006-01-02 15:04 MST"))
	return json.Marshal(map[string]string{"text": text.String()})
}

// String says how many fail for which reasons.
func (c Count) String() string {
	var reasons []string
	for _, reason := range slices.Sorted(maps.Keys(c.Reasons)) {
		reasons = append(reasons, fmt.Sprintf("%d %s", c.Reasons[reason], reason))
	}
	return strings.Join(reasons, ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

package judge_test

import (
	"strings"
	"testing"
)

// A ServiceAccount's members are told apart by the Pods of their tokens, and what a fence refuses them is counted.
func TestRefusedByAFence(t *testing.T) {
	as := func(pod, line string) string {
		return strings.Replace(line, `"user":{"username":"sa"}`, `"user":{"username":"sa","extra":{"authentication.kubernetes.io/pod-name":["`+pod+`"]}}`, 1)
	}
	refusal := func(pod, message string) string {
		l := line("patch", "websites", "one", "sa", "403", 6, `{"kind":"Status"}`)
		return as(pod, strings.Replace(l, `{"code":403}`, `{"code":403,"message":"`+message+`"}`, 1))
	}
	log := logOf(t,
		refusal("web-1", "denied request: the fence of rota operators/website: Pod web-1 is not a member"),
		refusal("web-2", "exceeded quota"),
		as("web-3", line("patch", "websites", "one", "sa", "200", 6, site("u", "141", 1, 1, ""))),
	)
	if len(log.Refused) != 1 || log.Refused[0].User != "sa/web-1" || log.Refused[0].Site.Name != "one" {
		t.Errorf("refused: %+v, want one of sa/web-1", log.Refused)
	}
	if len(log.Writes) != 1 || log.Writes[0].User != "sa/web-3" {
		t.Errorf("writes: %+v, want one of sa/web-3", log.Writes)
	}
}

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCanaryFlags: bad input gets one clear line, before anything is asked of an API server.
func TestCanaryFlags(t *testing.T) {
	for _, c := range []struct {
		f     canaryFlags
		steps []int
		want  string // of the error; "": there is none
	}{
		{canaryFlags{build: "v2", share: "5%"}, []int{5}, ""},
		{canaryFlags{build: "v2", share: "5", steps: []string{"20", "100%"}, every: time.Hour}, []int{5, 20, 100}, ""},
		{canaryFlags{build: "v2", share: "5%", steps: []string{"5", "20"}, every: time.Minute}, []int{5, 20}, ""},
		{canaryFlags{build: "v2", namespaces: []string{"a"}}, []int{0}, ""},
		{canaryFlags{build: "v2", namespaces: []string{"a"}, steps: []string{"20"}, every: time.Hour}, []int{0, 20}, ""},
		{canaryFlags{build: "v2", namespaces: []string{"a"}, share: "20"}, []int{20}, ""},
		{canaryFlags{build: "v 2", share: "5%"}, nil, "must be one word"}, // testdata/refused.txt has more
		{canaryFlags{build: "v2", share: "a fifth"}, nil, "whole number of percent"},
	} {
		got, err := c.f.canary()
		switch {
		case c.want == "" && (err != nil || !slices.Equal(got.Steps, c.steps)):
			t.Errorf("%+v: steps %v, %v; want %v", c.f, got.Steps, err, c.steps)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || codeOf(err) != exitUsage):
			t.Errorf("%+v: error %v, want one with %q", c.f, err, c.want)
		}
	}
}

func TestPinLabels(t *testing.T) {
	for text, want := range map[string]string{"pool=large": "pool=large", "zone=a,pool=large": "pool=large,zone=a", "a=": "a="} {
		if got, err := pinLabels(text); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "pool", "pool=a=b", "pool=large,", "po ol=x", "pool=sehr groß", "pool in (a,b)"} {
		if got, err := pinLabels(text); err == nil {
			t.Errorf("%q: %q, and no error", text, got)
		}
	}
}

func TestObjectName(t *testing.T) {
	for _, text := range []string{"team-a/huge", "node-1", "team-a/system:admin", "kube-system/a.b"} {
		if err := objectName(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "/", "a/", "/a", "a/b/c", "Team/a", "a/b c", "a b", "a,b", ".."} {
		if err := objectName(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

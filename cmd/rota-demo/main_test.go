package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestBadUse(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"--slots 100":                {exitFindings, "power of two"},
		"--rate -1":                  {exitFindings, "rate -1"},
		"--objects -3":               {exitFindings, "objects -3"},
		"--output xml":               {exitUsage, "must be text or json"},
		"--delivery pigeon":          {exitUsage, "pigeon"},
		"--lease-duration -1s":       {exitUsage, "must be above 0"},
		"--audit-log x":              {exitFindings, "only with a kubeconfig"},
		"--kubeconfig /no/x":         {exitFindings, "/no/x"},
		"--python x":                 {exitUsage, "only with --dispatch"},
		"--dispatch --migrate":       {exitUsage, "not with --dispatch"},
		"--dashboard --release rota": {exitUsage, "choose one"},
		"--flag":                     {exitUsage, "unknown flag: --flag; see `rota-demo --help`"},
		"something":                  {exitUsage, "something"},
	} {
		root := newCommand()
		var out, errOut bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errOut)
		code := run(t.Context(), root, strings.Fields(args))
		if text := errOut.String(); code != want.code || !strings.Contains(text, want.text) ||
			strings.Count(text, "\n") != 1 || out.Len() > 0 {
			t.Errorf("rota-demo %s: exit code %d, want %d with %q in one line:\n%s%s", args, code, want.code, want.text, text, &out)
		}
	}
}

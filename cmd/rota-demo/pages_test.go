package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/pages"
)

// TestPages: each flag of the demo that a page shows exists, also where it is in ARGS of make.
func TestPages(t *testing.T) {
	uses := pages.Commands(t, "../..", "rota-demo")
	for _, use := range pages.Commands(t, "../..", "make") {
		if len(use.Args) > 1 && use.Args[0] == "demo" {
			use.Args = slices.Clone(use.Args[1:])
			use.Args[0] = strings.TrimPrefix(use.Args[0], "ARGS=")
			uses = append(uses, use)
		}
	}
	if len(uses) < 10 {
		t.Errorf("%d uses of the demo on the pages", len(uses))
	}
	pages.Check(t, newCommand(), uses)
}

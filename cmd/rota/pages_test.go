package main

import (
	"testing"

	"github.com/rota-dev/rota/test/pages"
)

// TestPages: each command and flag of rota that a page shows exists.
func TestPages(t *testing.T) {
	uses := pages.Commands(t, "../..", "rota")
	if len(uses) < 100 {
		t.Errorf("%d uses of rota on the pages", len(uses))
	}
	pages.Check(t, newCommand(), uses)
}

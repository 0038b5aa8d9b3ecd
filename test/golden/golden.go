// Package golden compares what a test makes with a file. With the flag -update the test writes the file instead.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/require"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// Updating reports whether the test writes its golden files.
func Updating() bool { return *update }

// File fails a test whose text is not the file's.
func File(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-file +test), which go test -update writes:\n%s", path, diff)
	}
}

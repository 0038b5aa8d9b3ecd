package journal_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/journal"
)

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web-1")
	reader := journal.NewReader(path, "web-1")
	if all, err := reader.Read(); err != nil || all != nil {
		t.Fatalf("no file yet: %v, %v", all, err)
	}
	w, err := journal.Create(path)
	require.NoError(t, err)
	defer w.Close()
	before := journal.Now()
	_, end := w.Start(journal.Now(), types.NamespacedName{Namespace: "sites", Name: "a"}, "uid-a", 7, 41)
	n, _ := w.Start(journal.Now(), types.NamespacedName{Namespace: "sites", Name: "b"}, "", 0, 42)
	w.Take(n, 5, "4711", 1)
	w.Take(n, 6, "", 2)
	if all, err := reader.Read(); err != nil || len(all) != 2 || all[0].End != 0 {
		t.Fatalf("two starts: %+v, %v", all, err)
	}
	end()
	all, err := reader.Read()
	require.NoError(t, err)
	for i := range all {
		if all[i].Start < before || all[i].Start > journal.Now() {
			t.Errorf("reconcile %d starts at %v, not between %v and now", i, all[i].Start, before)
		}
		all[i].Start = 0
	}
	if all[0].End < before {
		t.Errorf("end %v", all[0].End)
	}
	all[0].End = 1
	want := []journal.Reconcile{
		{Pod: "web-1", Key: types.NamespacedName{Namespace: "sites", Name: "a"}, UID: "uid-a", Generation: 7, Epoch: 41, End: 1},
		{Pod: "web-1", Key: types.NamespacedName{Namespace: "sites", Name: "b"}, Epoch: 42, Deadline: 6, Attempt: 2},
	}
	require.Equal(t, "journal", want, all)
}

func TestBadJournal(t *testing.T) {
	for _, text := range []string{"X\n", "S 1 2 noslash uid 1 1\n", "S x 2 a/b uid 1 1\n", "E 1 2\n", "T 1 2 - 1\n",
		"S 1 2 a/b uid 1 1\nT 1 x - 1\n", "S 1 2 a/b uid 1 1\nE 1 2\nT 1 2 - 1\n",
	} {
		path := filepath.Join(t.TempDir(), "web-1")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := journal.NewReader(path, "web-1").Read(); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	path := filepath.Join(t.TempDir(), "web-1")
	require.NoError(t, os.WriteFile(path, []byte("S 1 2 a/b uid 1 1\nE 1"), 0o600))
	if all, err := journal.NewReader(path, "web-1").Read(); err != nil || len(all) != 1 {
		t.Errorf("a line cut short: %v, %v", all, err)
	}
}

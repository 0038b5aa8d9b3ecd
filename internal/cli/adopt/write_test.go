package adopt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWrite: all files are tried before one is written, and an error says what is written.
func TestWrite(t *testing.T) {
	for name, test := range map[string]struct {
		// spoil makes the second file one that cannot be written.
		spoil func(t *testing.T, name string)
		want  string
	}{
		"all can be": {func(*testing.T, string) {}, ""},
		"changed": {func(t *testing.T, name string) { writeFile(t, name, "another") },
			"nothing was written"},
		"missing": {func(t *testing.T, name string) { must(t, os.Remove(name)) }, "nothing was written"},
		"a folder": {func(t *testing.T, name string) {
			must(t, errors.Join(os.Remove(name), os.Mkdir(name, 0o755)))
		}, "nothing was written"},
		"read only": {func(t *testing.T, name string) {
			must(t, os.Chmod(name, 0o444))
			if f, err := os.OpenFile(name, os.O_RDWR, 0); err == nil {
				must(t, f.Close())
				t.Skip("the superuser may write it")
			}
		}, "nothing was written"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
			writeFile(t, a, "old")
			writeFile(t, b, "old")
			must(t, os.Chmod(a, 0o600))
			test.spoil(t, b)
			err := Write([]Change{{a, "a", []byte("old"), []byte("new")}, {b, "b", []byte("old"), []byte("new")},
				{c, "c", nil, []byte("new")}})
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
			want := "old"
			if test.want == "" {
				want = "new"
			}
			if text, err := os.ReadFile(a); err != nil || string(text) != want {
				t.Errorf("the first file has %q, %v, want %q", text, err, want)
			}
			if info, err := os.Stat(a); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the mode of the first file is %v, %v", info.Mode(), err)
			}
			if _, err := os.Stat(c); (err == nil) != (test.want == "") {
				t.Errorf("the new file: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, ".rota*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestWriteHalf: where writing fails in spite of that, the error names what is written.
func TestWriteHalf(t *testing.T) {
	dir := t.TempDir()
	var all []staged
	for _, name := range []string{"a", "b", "c"} {
		file := filepath.Join(dir, name)
		writeFile(t, file, "old")
		s, err := stage(Change{file, name, []byte("old"), []byte("new")})
		must(t, err)
		all = append(all, s)
	}
	must(t, os.Remove(all[2].fresh))
	if err := replace(all); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "c: written are a, b,") {
		t.Error(err)
	}
	if err := replace(all[2:]); err == nil || !strings.Contains(err.Error(), "nothing was written") {
		t.Error(err)
	}
}

// TestWriteLink: what a link leads to is written, and the link stays. A file that is there is not made anew.
func TestWriteLink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	writeFile(t, file, "old")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	must(t, Write([]Change{{link, "link", []byte("old"), []byte("new")}}))
	to, err := os.Readlink(link)
	text, err2 := os.ReadFile(file)
	if diff := cmp.Diff([]any{file, "new"}, []any{to, string(text)}); diff != "" {
		t.Error(diff, err, err2)
	}
	if err := Write([]Change{{link, "link", nil, []byte("new")}}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there was made anew: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

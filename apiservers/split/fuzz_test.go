package split

import (
	"os"
	"slices"
	"testing"

	"github.com/rota-dev/rota/test/require"
)

// FuzzManifest: whatever the input, it is refused or divided so that every controller runs once.
func FuzzManifest(f *testing.F) {
	text, err := os.ReadFile("testdata/kubeadm.yaml")
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte("kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec:\n  containers:\n  - command: [kube-controller-manager, -v, '2']\n    ports: [a]\n    livenessProbe: 3\n"))
	f.Add([]byte("kind: Pod\napiVersion: v1\nspec: {containers: [1]}"))
	f.Add([]byte("kube-controller-manager --controllers '*,-job' --v=2"))
	cat, err := CatalogOf(Verified)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text []byte) {
		if processes, err := ParseProcesses("p", "h", text); err == nil {
			for _, proc := range processes {
				if again, err := ParseCommand(proc.Command.Words()); err != nil || !slices.Equal(again.Words(), proc.Command.Words()) {
					t.Errorf("%q: again %q, %v", proc.Command.Words(), again.Words(), err)
				}
			}
		}
		m, err := ParseManifest("m", text)
		if err != nil {
			return
		}
		p, err := New(Input{Manifest: m}, nil, cat)
		if err != nil {
			return
		}
		files, err := p.Files()
		if err != nil {
			return
		}
		var all []Process
		for _, file := range files[:len(p.Groups)] {
			found, err := ParseProcesses(file.Path, "h", file.Text)
			if err != nil || len(found) != 1 {
				t.Fatalf("%s: %v, %v", file.Path, found, err)
			}
			all = append(all, found...)
		}
		if findings := Compare(p, all); len(findings) > 0 {
			t.Errorf("what is written is not as planned: %q", findings)
		}
	})
}

package fence

import "testing"

// FuzzParse: what is taken names the same again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"configmaps", "/configmaps", "apps/deployments", "apps/deployments/scale", "deployments.apps", "operators/website-operator", "*/*", "Apps/x", "a/b/c", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := ParseResource(text); err == nil {
			if again, err := ParseResource(resourceText(r)); err != nil || again != r {
				t.Errorf("resource %q is %v, which is written as %q and read as %v, %v", text, r, resourceText(r), again, err)
			}
		}
		if sa, err := ParseServiceAccount(text); err == nil {
			if sa.String() != text {
				t.Errorf("service account %q is %v", text, sa)
			}
		}
	})
}

package main

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/test/require"
)

func TestPrintShadow(t *testing.T) {
	r := shown()
	r.Shadow = &view.Shadow{Of: "web", Kinds: []view.ShadowKind{
		{Kind: "ConfigMap", Members: []view.ShadowShare{}},
		{Kind: "Website", Objects: 40, Labels: 20, Changes: ptr.To(6.25),
			Members: []view.ShadowShare{{Member: "web-0-a", Objects: 30, Share: 0.75}, {Member: "web-1-b", Objects: 10, Share: 0.25}}},
	}}
	var out bytes.Buffer
	require.NoError(t, printStatus(&out, paint{}, r, false))
	want := `
WOULD HAVE        OBJECTS  SHARE  CHANGES/MIN  LABELS TO WRITE
all of ConfigMap  0        100%   -            0
all of Website    40       100%   6.2          20
  web-0-a         30       75%                 
  web-1-b         10       25%                 
`
	if !strings.HasPrefix(out.String(), view.ShadowText+"\n") || !strings.Contains(out.String(), want) {
		t.Errorf("printed:\n%s\nwant in it:%s", out.String(), want)
	}
	out.Reset()
	r.Shadow.Kinds = nil
	require.NoError(t, printStatus(&out, paint{}, r, false))
	if !strings.Contains(out.String(), "no member has reported yet") {
		t.Errorf("printed:\n%s", out.String())
	}
}

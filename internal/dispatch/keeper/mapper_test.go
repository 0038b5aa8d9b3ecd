package keeper

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nothing is a mapper that knows no kind, and counts resets.
type nothing struct {
	meta.RESTMapper
	resets int
}

func (n *nothing) Reset() { n.resets++ }

func (n *nothing) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

// A kind that is not served is looked for each second, and discovery is not reset each time.
func TestDiscoveryIsNotResetOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n nothing
		s := &source{mapper: &mapper{ResettableRESTMapper: &n}, kind: schema.GroupKind{Kind: "Site"}}
		for range 60 {
			if _, err := s.objects(); !meta.IsNoMatchError(err) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n.resets != 6 {
			t.Errorf("%d resets in a minute, want 6", n.resets)
		}
	})
}

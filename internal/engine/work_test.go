package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/test/store/memory"
)

// R9: the rota is left while informers and workers still work, and they end then.
func TestR9WorkLeavesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		r.store = memory.New().Client(nil)
		name := types.NamespacedName{Namespace: "a", Name: "b"}
		ctx, cancel := context.WithCancel(t.Context())
		owned, left := false, false
		err := r.Work(ctx, func(work context.Context) {
			<-r.Joined()
			for !r.Owns(secretKind, name) {
				<-time.After(time.Second)
			}
			owned = true
			cancel()
			<-work.Done()
			left = !r.Owns(secretKind, name)
		})
		noError(t, err)
		if !owned || !left {
			t.Errorf("owned %t, left before the work ended %t, want both", owned, left)
		}
	})
}

func TestWorkThatEndsByItselfIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		r.store = memory.New().Client(nil)
		if err := r.Work(t.Context(), func(context.Context) { <-r.Joined() }); err == nil {
			t.Error("Work returned nil, want an error: nobody works any more")
		}
	})
}

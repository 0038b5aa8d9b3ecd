package report

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// numbered lists one object, at a version.
type numbered string

func (n numbered) List(_ context.Context, _ schema.GroupKind, each func(metav1.Object)) (string, error) {
	each(&metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: "7"})
	return string(n), nil
}

// What changed since a list is what has a later version than that list.
func TestExpectationCountsChanges(t *testing.T) {
	kind := schema.GroupKind{Kind: "Secret"}
	for version, want := range map[numbered]int{"6": 1, "9": 0} {
		e, err := NewExpectation(ExpectationEnv{Config: member.Config{Slots: 8, Key: slot.KeyName},
			Kinds: []schema.GroupKind{kind}, From: version, Now: func() time.Duration { return 0 }})
		require.NoError(t, err)
		changed := 0
		for range 2 {
			require.NoError(t, e.count(t.Context(), kind))
		}
		for _, n := range e.seen[kind].changed {
			changed += n
		}
		if changed != want {
			t.Errorf("after a list at %s, %d objects of version 7 have changed, want %d", version, changed, want)
		}
	}
}

// All kinds together are listed in 1/1000 of the time. One that cannot be listed is tried again sooner.
func TestExpectationPace(t *testing.T) {
	e := &Expectation{env: ExpectationEnv{Kinds: make([]schema.GroupKind, 2)}}
	if got := e.period(time.Minute, nil); got != 2000*time.Minute {
		t.Errorf("with two kinds: %v", got)
	}
	if got := e.period(time.Minute, errors.New("it failed")); got != scrubLatest {
		t.Errorf("after a failure: %v", got)
	}
}

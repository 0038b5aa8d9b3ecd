package report

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

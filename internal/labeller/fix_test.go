package labeller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/test/require"
)

func TestFix(t *testing.T) {
	f := newFake(t)
	f.put("one", map[string]string{label: "7", "app": "x"})
	denied := func(context.Context) (context.Context, func(), bool) { return nil, nil, false }
	l := start(t, f.config(), labeller.Options{Permit: denied})
	one := &metav1.ObjectMeta{Namespace: "ns", Name: "one", Labels: map[string]string{label: "7"}}
	if !l.Fix(configMaps, one) {
		t.Fatal("the queue is full")
	}
	eventually(t, "rewritten", f.labelled)
	one.Labels[label] = right("one")
	l.Fix(configMaps, one)
	l.Fix(configMaps, &metav1.ObjectMeta{Namespace: "ns", Name: "gone"})
	eventually(t, "the other is gone", func() bool { return l.Stats().Gone == 1 })
	if got := f.asked("patch"); !slices.Equal(got, []string{"patch one", "patch gone"}) {
		t.Errorf("%v", got)
	}
}

func TestFixQueueIsBoundedAndWithoutDuplicates(t *testing.T) {
	l, err := labeller.New(newFake(t).config(), labeller.Options{Label: label,
		Resources: append(labeller.Options{}.Resources, configMaps)})
	require.NoError(t, err)
	for i := range labeller.MaxFixes {
		for range 2 {
			if !l.Fix(configMaps, &metav1.ObjectMeta{Name: fmt.Sprint(i)}) {
				t.Fatalf("full at %d", i)
			}
		}
	}
	if l.Fix(configMaps, &metav1.ObjectMeta{Name: "more"}) || l.Stats().Refused != 1 {
		t.Errorf("not full: %+v", l.Stats())
	}
}

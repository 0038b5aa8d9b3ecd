package rotatest

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// Members of another process are left alone. What a process that was killed has left behind is deleted, and nothing
// else.
func TestAnotherProcess(t *testing.T) {
	cfg := controlplane.For(t).Config()
	defer alone(cfg.Host)()
	o, err := good(cfg).withDefaults()
	require.NoError(t, err)
	k, err := newKit(t.Context(), o, 1) // makes the namespace
	require.NoError(t, err)
	defer func() { _ = k.close() }()
	lease := func(name, label string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: rotaName, Name: name, Labels: map[string]string{label: rotaName}},
			Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](3),
				RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
		}
		require.NoError(t, k.own.Create(t.Context(), l))
		return l
	}
	foreign := lease("foreign", "app")
	defer func() { _ = k.own.Delete(context.WithoutCancel(t.Context()), foreign) }()
	of := lease(rotaName+".other", names.LabelRota)
	renewing, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for renewing.Err() == nil {
			of.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
			_ = k.own.Update(renewing, of) // until the test ends it
			select {
			case <-renewing.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	err = k.claim(t.Context())
	stop()
	<-stopped
	if err == nil || !strings.Contains(err.Error(), "another rotatest runs on this API server: Lease rotatest/rotatest.other") {
		t.Errorf("got %v", err)
	}
	if err := k.claim(t.Context()); err != nil {
		t.Errorf("its members are dead: %v", err)
	}
	if err := k.own.Get(t.Context(), client.ObjectKeyFromObject(of), of); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease of a dead member: %v", err)
	}
	if err := k.own.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("somebody else's Lease: %v", err)
	}
}

package rota_test

import (
	"context"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
)

// An operator that is not sharded. One replica leads, as with leader election, and a fence can refuse the late writes of
// a former leader (docs/client-go.md).
func ExampleRota_Duty_leader() {
	cfg, err := rest.InClusterConfig()
	check(err)
	r, err := rota.New(cfg, rota.Options{Name: "website"})
	check(err)
	client, err := kubernetes.NewForConfig(r.WrapConfig(cfg)) // refuses what is written with ctx once the duty is lost
	check(err)
	check(r.Duty("lead", func(ctx context.Context) error { // in place of OnStartedLeading
		return operate(ctx, client)
	}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	check(r.Run(ctx)) // hands the duty over when ctx ends
}

// operate is the operator: it returns when ctx ends, and leaves nothing running.
func operate(ctx context.Context, client kubernetes.Interface) error {
	for ctx.Err() == nil {
		done := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "work-"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, done, metav1.CreateOptions{}); err != nil {
			return err // it is tried again, here or by another replica
		}
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}
	return nil
}

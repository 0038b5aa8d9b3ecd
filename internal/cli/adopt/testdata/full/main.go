// Command full has one of each thing that adopt knows. Comments say which findings a line has.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func main() {
	elect := flag.Bool("leader-elect", true, "")
	flag.Parse()
	cfg := ctrl.GetConfigOrDie()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{ // want `^Manager\+:` `^NoProbes:`
		LeaderElection:   *elect, // want `^LeaderElection\+:`
		LeaderElectionID: "full.example.com",
		Cache:            cache.Options{SyncPeriod: nil},
	})
	if err != nil {
		panic(err)
	}
	ctx := ctrl.SetupSignalHandler()
	check(mgr.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, "spec.of", nil))
	check(setup(mgr))
	check(mgr.Add(manager.RunnableFunc(func(context.Context) error { return nil }))) // want `^Runnable:`
	check(mgr.Add(&everywhere{}))
	check(mgr.Add(&sometimes{}))                                  // want `^Runnable:`
	check(mgr.AddReadyzCheck("rota", healthz.Ping))               // want `^ReadinessName:`
	_, err = mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}) // want `^CacheInformer:`
	check(err)
	_, err = mgr.GetCache().GetInformer(ctx, &corev1.Node{})
	check(err)
	go func() {
		<-mgr.Elected() // want `^Elected:`
	}()
	_, err = client.New(cfg, client.Options{}) // want `^OwnClient:`
	check(err)
	config := mgr.GetConfig()
	clients, err := kubernetes.NewForConfig(config)
	check(err)
	informers.NewSharedInformerFactory(clients, time.Hour)                                                         // want `^ClientInformer:`
	workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())                     // want `^OwnQueue:`
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Callbacks: leaderelection.LeaderCallbacks{}}) // want `^OwnLeaderElection:`
	go func() {                                                                                                    // want `^LateControllers:`
		check(setup(mgr))
	}()
	check(mgr.Start(ctx))
}

type everywhere struct{}

func (*everywhere) Start(context.Context) error { return nil }
func (*everywhere) NeedLeaderElection() bool    { return false }

type sometimes struct{ leads bool }

func (*sometimes) Start(context.Context) error { return nil }
func (s *sometimes) NeedLeaderElection() bool  { return s.leads }

func check(err error) {
	if err != nil {
		os.Exit(1)
	}
}

package client_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/rota-dev/rota/dispatch/client"
)

func ExampleRun() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := client.New(client.Options{
		URLs:      []string{"https://website-dispatch.operators.svc"},
		TokenFile: "/var/run/secrets/rota.dev/dispatch/token", CAFile: "/etc/rota/ca/ca.crt",
	})
	if err != nil {
		log.Fatal(err) //nolint:gocritic // nothing has to be undone yet
	}
	worker := client.Worker{Client: c, Kinds: []string{"Website.web.example.com"}, Concurrency: 10}
	err = client.Run(ctx, worker, func(ctx context.Context, t *client.Take) (client.Result, error) {
		return client.Result{}, reconcile(ctx, t.Namespace, t.Name) // an error: the key comes again
	})
	log.Print("the worker has ended: ", err)
}

func reconcile(context.Context, string, string) error { return nil }

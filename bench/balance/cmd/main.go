// Command cmd measures how requests and watches spread over API servers after a scale-up: make check WHAT=balance. With
// -checks it measures what health checks cost an API server.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/rota-dev/rota/bench/balance"
	"github.com/rota-dev/rota/test/process"
)

func main() {
	o := balance.Options{Log: os.Stderr}
	flag.IntVar(&o.Before, "before", 2, "API servers before the scale-up")
	flag.IntVar(&o.After, "after", 4, "API servers after it")
	flag.IntVar(&o.Clients, "clients", 200, "clients, each with a connection and a watch")
	flag.DurationVar(&o.Every, "every", time.Second, "average time between two requests of a client")
	flag.DurationVar(&o.Settle, "settle", 10*time.Second, "time before the scale-up")
	flag.DurationVar(&o.For, "for", 60*time.Second, "time after the scale-up")
	flag.DurationVar(&o.Window, "window", 10*time.Second, "time at the end of it whose requests are counted")
	checks := flag.Int("checks", 0, "measure instead what so many health checks per second cost an API server")
	flag.Parse()
	ctx, stop := process.Interruptible()
	var err error
	if *checks > 0 {
		var costs []balance.ChecksCost
		if costs, err = balance.Checks(ctx, balance.ChecksOptions{Rate: *checks, For: o.Window, Log: os.Stderr}); err == nil {
			err = balance.PrintChecks(os.Stdout, costs)
		}
	} else {
		err = measure(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "balance:", err)
		os.Exit(1)
	}
}

// measure measures without a remedy and with each.
func measure(ctx context.Context, o balance.Options) error {
	var results []balance.Result
	for _, c := range []struct {
		goaway   float64
		remedy   balance.Remedy
		lifetime time.Duration
	}{
		{0, balance.Nothing, 0},
		{0.001, balance.Nothing, 0},
		{0.02, balance.Nothing, 0},
		{0, balance.Nothing, 15 * time.Second},
		{0.02, balance.Nothing, 15 * time.Second},
		{0, balance.Cut, 0},
		{0, balance.Restart, 0},
	} {
		o.Goaway, o.Remedy, o.WatchLifetime = c.goaway, c.remedy, c.lifetime
		fmt.Fprintf(os.Stderr, "goaway-chance %v, remedy %s, watches of %v\n", c.goaway, c.remedy, c.lifetime)
		r, err := balance.Run(ctx, o)
		if err != nil {
			return err
		}
		if r.LastError != nil {
			fmt.Fprintln(os.Stderr, "the last failed request:", r.LastError)
		}
		results = append(results, r)
	}
	return balance.Print(os.Stdout, results)
}

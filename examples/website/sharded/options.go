package main

import (
	"flag"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rota-dev/rota"
)

// options configure the rota. Deployments set the options that differ by flags such as --rota-delivery.
var options = rota.Options{Name: "website", Logger: ctrl.Log}

func init() { options.BindFlags(flag.CommandLine) }

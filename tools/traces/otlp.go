// Package traces shows how a program sends traces of handovers over OTLP, and tests what they say.
package traces

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota"
)

// Run works as a member whose handovers are traced. The collector is at OTEL_EXPORTER_OTLP_ENDPOINT.
func Run(ctx context.Context, cfg *rest.Config, work func(context.Context, *rota.Rota) error) error {
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return err
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter)) // with OTEL_SERVICE_NAME, and what you add
	defer func() { _ = provider.Shutdown(context.WithoutCancel(ctx)) }()

	r, err := rota.New(cfg, rota.Options{Name: "website", TracerProvider: provider})
	if err != nil {
		return err
	}
	return work(ctx, r) // r.Work, or a manager of ctrlrt
}

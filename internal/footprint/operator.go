package footprint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/process"
)

// EnvOperator is the environment variable that carries a replica's configuration.
const EnvOperator = "ROTA_FOOTPRINT_OPERATOR"

type operatorConfig struct {
	Form             Form
	Kubeconfig, Name string // Name is the rota's, and that of the leader's Lease
	Pages            string // the folder of the published pages
	Watch            string // the namespace of the Websites; "": all
	Lease            time.Duration
	Stamp            bool // it stamps what it creates
}

// OperatorMain is a replica: the Website operator, measured. It returns the exit status. It ends when its standard
// input does, so also when the process that started it dies.
func OperatorMain() int {
	var c operatorConfig
	process.EndWithInput(0)
	return process.Main(EnvOperator, "`make footprint`", &c, c.run)
}

func (c *operatorConfig) run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), webv1.AddToScheme(scheme)); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1 // as controller-runtime sets it
	m := &meter{}
	m.wire.watch(cfg)
	go m.run(ctx)
	op, err := c.operator(ctx, cfg, scheme)
	if err != nil {
		return err
	}
	if err := serve(ctx, &probe{meter: m, operator: op}); err != nil {
		return err
	}
	return op.manager.Start(ctx)
}

// serve answers the parent's questions and tells it where, on standard output.
func serve(ctx context.Context, p *probe) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }() // until the process ends
	_, err = fmt.Println(listener.Addr())
	return err
}

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/slot"
)

// soloDefaults fills in the options that Solo makes optional. It returns an error if the process runs in a Pod.
func (o Options) soloDefaults() (Options, error) {
	if !o.Solo {
		return o, nil
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" && !isTest() {
		return o, errors.New("rota: Options.Solo is set, and this process runs in a Pod and is not a test: every replica " +
			"would work on all objects. Leave Solo out where the operator is deployed; it is for tests")
	}
	if o.Delivery == sharding.ShardSelector && o.Key == slot.KeyUnknown {
		o.Key = slot.KeyUID
	}
	// Solo uses neither selectors nor labels.
	o.Delivery, o.Label = sharding.Filter, false
	o.Name, o.Namespace = cmp.Or(o.Name, "solo"), cmp.Or(o.Namespace, os.Getenv("POD_NAMESPACE"), "default")
	return o, nil
}

// isTest reports whether this program was built by go test. It does what testing.Testing does without linking package
// testing into operators.
func isTest() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && strings.HasSuffix(info.Path, ".test")
}

// newSolo returns an Engine that needs neither table nor Lease. cfg is nil if the program uses fake clients.
func newSolo(cfg *rest.Config, opts Options, config member.Config) *Engine {
	r := newEngine(cfg, opts, config)
	r.store = replica.SoloStore{}
	r.log.Info("This process works alone on all objects (Options.Solo): no other replica may run")
	return r
}

// decide returns the decision maker of an incarnation: a member, or a Solo.
func (r *Engine) decide() replica.Member {
	if !r.opts.Solo {
		return member.New(r.cfg)
	}
	s, t := replica.NewSolo(r.cfg, time.Now())
	r.state.See(member.Snapshot{UID: t.UID, Version: "1", Table: t})
	return s
}

// checkSolo returns an error for options that cannot be combined with Solo.
func (o Options) checkSolo() error {
	if o.Solo && o.Group != nil {
		return fmt.Errorf("rota %s: Options.Solo and Options.Group: a group needs the other groups; test with one of the two",
			o.Name)
	}
	return nil
}

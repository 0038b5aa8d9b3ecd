package ctrlrt_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// step makes a step.
func (w *lifeWorld) step(n int, name string, s lifeStep) {
	switch s.do {
	case anAdd:
		l := newLived(w, fmt.Sprintf("runnable %d", n), s.kind, s.way)
		if w.script.hasty() && l.group == leaderGroup && l.way == lingers {
			l.way = runs // it would be chance whether the manager waits for it
		}
		w.know(l)
		w.call(name, func() string { return about(w.add(l)) })
		if w.phase == upPhase && l.way == fails && w.starts(l) {
			w.ends()
		}
	case aStart:
		if w.phase == unbegunPhase {
			w.start()
			return
		}
		w.call(name, func() string { return about(w.mgr.Start(w.t.Context())) })
	case aCancel:
		if w.cancel(); w.phase == upPhase {
			w.ends()
		}
	case aRelease:
		w.release()
		w.later.Wait()
	case aFailure, aReturn:
		w.end(n-s.back, s.do == aFailure)
	case aTheft:
		if err := w.giveAway(w.t.Context()); err != nil {
			w.fact(name, "%v", err)
		}
		w.ends()
	case anOccupation:
		w.fact(name, "%s", w.occupation())
	default:
		w.ask(n, name, s.do)
	}
}

// occupation has a reconcile begin that waits for its context.
func (w *lifeWorld) occupation() string {
	if err := w.direct.Create(w.t.Context(), configMap(w.namespace, w.occupier(), "1")); err != nil {
		return about(err)
	}
	err := w.await(func() string {
		if !isClosed(w.occupied) {
			return "the reconcile has not begun"
		}
		return ""
	})
	if err != nil {
		return fmt.Sprintf("%s: %v", hangs, err)
	}
	return ""
}

// end has the runnable of a step end by itself, if it runs.
func (w *lifeWorld) end(step int, fail bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.runnables {
		server := l.kind == aServer || l.kind == leadersServer
		switch {
		case l.name != fmt.Sprintf("runnable %d", step) || w.hides(l):
		case !l.started || l.stopped || l.ended || l.finishing || fail && w.phase == heldPhase || server && !fail:
		case fail:
			l.finishing = true
			l.end <- errOnPurpose
			w.ends()
		default:
			l.finishing = true
			l.end <- nil
		}
	}
}

// ask makes a call that changes little.
func (w *lifeWorld) ask(n int, name, what string) {
	hasty := w.script.hasty() && w.phase >= endingPhase
	check := fmt.Sprint("check-", n%2)
	switch what {
	case aHealthCheck:
		w.call(name, func() string { return about(w.mgr.AddHealthzCheck(check, healthz.Ping)) })
	case aReadyCheck:
		w.call(name, func() string { return about(w.mgr.AddReadyzCheck(check, healthz.Ping)) })
	case aMetricsHandler:
		w.call(name, func() string { return about(w.mgr.AddMetricsServerExtraHandler("/"+check, http.NotFoundHandler())) })
	case theWebhooks:
		given := w.options.WebhookServer.(webhookServer) // managerOptions sets it
		w.know(given.l)
		w.call(name, func() string {
			got := w.mgr.GetWebhookServer()
			w.mu.Lock()
			defer w.mu.Unlock()
			given.l.told = about(nil)
			return fmt.Sprintf("the one given: %t", got == w.options.WebhookServer)
		})
	case theOptions:
		w.fact(name, "%v, logger %t, scheme %t, host %t", w.mgr.GetControllerOptions().GroupKindConcurrency,
			w.mgr.GetLogger() == w.options.Logger, w.mgr.GetScheme() != nil, w.mgr.GetConfig().Host != "")
	case theElection:
		if elected := w.mgr.Elected(); !hasty {
			w.fact(name, "elected: %t", isClosed(elected))
		}
	case theSync:
		ctx, cancel := w.within()
		defer cancel()
		if synced := w.mgr.GetCache().WaitForCacheSync(ctx); !hasty {
			w.fact(name, "synced: %t", synced)
		}
	case aRead:
		if !hasty {
			w.fact(name+" of a ConfigMap", "%s", w.read(&corev1.ConfigMap{}, present))
			w.fact(name+" of a Secret", "%s", w.read(&corev1.Secret{}, present))
		}
	case aWrite:
		cm := configMap(w.namespace, fmt.Sprintf("%s-%d", w.name, n), "1")
		w.fact(name, "%s", about(w.mgr.GetClient().Create(w.t.Context(), cm)))
	case theProbes:
		w.fact(name+" of health", "%s", w.answers("/healthz"))
		w.fact(name+" of readiness", "%s", w.answers("/readyz"))
	}
}

// answers returns what the health probes say; "": they are not served.
func (w *lifeWorld) answers(path string) string {
	if w.phase != heldPhase && w.phase != upPhase {
		return ""
	}
	c := http.Client{Timeout: time.Minute}
	defer c.CloseIdleConnections()
	res, err := c.Get("http://" + w.address + path + "?verbose")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNotFound {
		return unserved
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", res.StatusCode, body)
}

// within bounds a read. One of a manager that ends must wait for nothing, or the cache's timeout.
func (w *lifeWorld) within() (context.Context, context.CancelFunc) {
	limit := time.Minute
	if w.phase == unbegunPhase || w.phase >= endingPhase {
		limit = time.Second
	}
	return context.WithTimeout(w.t.Context(), limit)
}

func (w *lifeWorld) read(obj client.Object, name string) string {
	ctx, cancel := w.within()
	defer cancel()
	return about(w.mgr.GetClient().Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, obj))
}

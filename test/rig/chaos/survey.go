package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/oracle"
)

// settled waits until every object's status shows its generation, for limit at most, and returns all objects.
func (s *fleet) settled(ctx context.Context, limit time.Duration) (objects []oracle.Object, err error) {
	_ = await.Until(ctx, 5*pollPeriod, limit, func() string { // in vain perhaps: the oracle tells
		var sites []webv1.Website
		if sites, err = s.cluster.Websites(ctx); err != nil {
			return err.Error()
		}
		objects = objects[:0]
		behind := ""
		for i := range sites {
			o := &sites[i]
			objects = append(objects, oracle.Object{
				Site:       judge.Site{NamespacedName: client.ObjectKeyFromObject(o), UID: string(o.UID)},
				Generation: o.Generation, Observed: o.Status.ObservedGeneration,
			})
			if o.Generation != o.Status.ObservedGeneration {
				behind = o.Name + " is not up to date"
			}
		}
		return behind
	})
	return objects, errors.Join(err, ctx.Err())
}

// census counts what there is.
func (s *fleet) census(ctx context.Context) (oracle.Census, error) {
	c := oracle.Census{Live: pods(s.live()), Goroutines: map[string]int{}, Watches: map[string]int{}}
	var err error
	if c.Leases, c.Reports, err = s.cluster.left(ctx, s.rota); err != nil {
		return c, err
	}
	t, err := s.table(ctx)
	if err != nil {
		return c, err
	}
	for _, m := range t.Members {
		c.Members = append(c.Members, m.Pod)
	}
	for _, m := range s.live() {
		if c.Goroutines[m.pod], err = m.goroutines(ctx); err != nil {
			return c, err
		}
		c.Watches[m.pod] = m.proxy.Watches()
	}
	return c, nil
}

// save links journals, logs and audit logs into a folder, under which a failing run can be looked at.
func (s *fleet) save(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(s.cluster.Plane.Dir(), "*.log"))
	if err != nil {
		return err
	}
	for _, path := range append(files, logs...) {
		if !strings.HasSuffix(path, ".journal") && !strings.HasSuffix(path, ".log") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(path)), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
)

const (
	// certificates is how many Secrets the Websites share.
	certificates = 20
	// renewEvery is of how many things that the load does one is the renewal of a certificate, which concerns all
	// Websites that share it.
	renewEvery = 400
	// collectAfter is how long after its deletion the children of a Website are deleted, at the earliest: a reconcile that
	// had begun before may still create some.
	collectAfter = 3 * time.Second
)

// tamper deletes or defaces a child of the Website. It need not be there yet.
func (l *load) tamper(ctx context.Context, s *rig.Site, choice int) error {
	kind := rig.ChildKinds[choice/2]
	obj := kind.Of(s.NamespacedName)
	var err error
	if choice%2 == 0 {
		err = l.client.Delete(ctx, obj)
	} else {
		err = l.client.Patch(ctx, obj, client.RawPatch(kind.Patch, []byte(kind.PatchBody)))
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("tamper with %T %s: %w", obj, obj.GetName(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tampered++
	return nil
}

func certificate(number int) string { return fmt.Sprintf("certificate-%02d", number) }

func secret(number, renewals int) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: SitesNamespace, Name: certificate(number)}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey: []byte("certificate " + strconv.Itoa(renewals)), corev1.TLSPrivateKeyKey: []byte("key"),
		},
	}
}

// renew changes a Secret.
func (l *load) renew(ctx context.Context, number int) error {
	l.mu.Lock()
	l.renewals[number]++
	l.renewed++
	next := secret(number, l.renewals[number])
	l.mu.Unlock()
	if err := l.client.Update(ctx, next); err != nil {
		return fmt.Errorf("renew %s: %w", next.Name, err)
	}
	return nil
}

// collect deletes the children of Websites that are gone. The garbage collector of a cluster does the same; the demo's
// own control plane has none. It waits until the page is withdrawn: the deletion of a child wakes the operator, too,
// and its event must not stand in for that of the Website.
func (l *load) collect(ctx context.Context) {
	deletions := l.Deletions()
	all := slices.Concat(l.garbage, deletions[l.collected:])
	l.garbage, l.collected = nil, len(deletions)
	for _, d := range all {
		if journal.Now()-d.Commit < collectAfter || l.pages.Published(d.NamespacedName) {
			l.garbage = append(l.garbage, d)
			continue
		}
		l.Go(func() error {
			var errs []error
			for _, kind := range rig.ChildKinds {
				errs = append(errs, client.IgnoreNotFound(l.client.Delete(ctx, kind.Of(d.NamespacedName))))
			}
			return errors.Join(errs...)
		})
	}
}

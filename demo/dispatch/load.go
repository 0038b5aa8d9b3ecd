package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// certificates is how many Secrets the Websites share.
const certificates = 5

// load updates Websites, recreates some and replaces others, so that a page left behind shows. While slots are on the
// way, half of what it does is to objects of those slots.
type load struct {
	*rig.Load
	slotOf func(judge.Site) slot.Slot
	random *rand.Rand // for run's goroutine
	// moving are the slots on the way.
	moving atomic.Pointer[slot.Set]
}

func newLoad(c client.Client, namespace string, seed uint64, slotOf func(judge.Site) slot.Slot) *load {
	l := &load{
		Load:   rig.NewLoad(c, namespace, seed, specOf),
		random: rand.New(rand.NewPCG(seed, 1)), // not for secrets
		slotOf: slotOf,
	}
	l.moving.Store(&slot.Set{})
	return l
}

// specOf returns a Website's specification: half of them are protected, and half have a certificate. They ask for no
// Pods.
func specOf(s *rig.Site) webv1.WebsiteSpec {
	spec := webv1.WebsiteSpec{
		Title: "Website " + s.Name, Content: fmt.Sprintf("Edition %d <of> \"it\" & 'that'.", s.Edition),
		Protected: s.Number%2 == 0, Replicas: ptr.To[int32](0),
	}
	if s.Number%4 < 2 {
		spec.SecretName = certificate(s.Number % certificates)
	}
	return spec
}

func certificate(number int) string { return fmt.Sprintf("certificate-%02d", number) }

// certify creates the Secrets.
func certify(ctx context.Context, c client.Client, namespace string) error {
	for number := range certificates {
		err := c.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: certificate(number)}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: []byte("certificate"), corev1.TLSPrivateKeyKey: []byte("key")},
		})
		if err != nil {
			return fmt.Errorf("create secret: %w", err)
		}
	}
	return nil
}

// bursting is how many Websites a burst changes.
const bursting = 100

// burst changes many Websites at once, so that every worker has keys.
func (l *load) burst(ctx context.Context) {
	for range bursting {
		l.Start(ctx, func(random *rand.Rand, sites []*rig.Site) *rig.Site {
			return rig.Pick(random, sites, func(*rig.Site) bool { return true })
		}, l.Update)
	}
}

// run works at the rate until ctx ends, and then ends what it began, in later.
func (l *load) run(ctx, later context.Context, rate float64) {
	l.Tick(ctx, func() time.Duration { return time.Duration(float64(time.Second) / rate) }, func() {
		aim := slot.Set{}
		if l.random.IntN(2) == 0 {
			aim = *l.moving.Load()
		}
		do := l.Update
		switch choice := l.random.IntN(100); {
		case choice < 20:
			do = l.Recreate
		case choice < 45:
			do = l.Replace
		}
		l.Start(later, func(random *rand.Rand, sites []*rig.Site) *rig.Site {
			return rig.Pick(random, sites, func(s *rig.Site) bool { return aim.Empty() || aim.Has(l.slotOf(s.Site)) })
		}, do)
	})
}

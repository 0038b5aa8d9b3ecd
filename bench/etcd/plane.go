package etcd

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/stage"
)

const (
	namespace = "etcdbench"
	// maps is how many ConfigMaps are updated in turn, leaseSeconds what a Lease says of itself.
	maps, leaseSeconds = 200, 40
)

// payload is the content of a ConfigMap, of about a kilobyte.
var payload = strings.Repeat("0123456789abcdef", 64)

// plane is a control plane that is measured.
type plane struct {
	server *controlplane.ControlPlane
	etcds  int
	// leases has those of leaseSet. Its client has a connection of its own, as have those of maps and events.
	leases, maps, events *kubernetes.Clientset

	leaseSet []held

	mu sync.Mutex
	// created counts objects, for their names.
	created int
}

// held is a Lease that its holder renews.
type held struct {
	sync.Mutex
	lease *coordinationv1.Lease
}

func (p *plane) prepare(ctx context.Context, leases int) (err error) {
	for _, c := range []**kubernetes.Clientset{&p.leases, &p.maps, &p.events} {
		config := p.server.Config()
		config.QPS = -1
		// Clients of the same configuration share their connections.
		config.Dial = (&dialer{}).DialContext
		if *c, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := p.maps.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	p.leaseSet = make([]held, leases)
	err = stage.Parallel(ctx, 0, leases, func(i int) error {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%05d", i)},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To(fmt.Sprintf("node-%05d", i)), LeaseDurationSeconds: ptr.To[int32](leaseSeconds),
				RenewTime: ptr.To(metav1.NowMicro()),
			},
		}
		lease, err := p.leases.CoordinationV1().Leases(namespace).Create(ctx, lease, metav1.CreateOptions{})
		p.leaseSet[i].lease = lease
		return err
	})
	if err != nil {
		return fmt.Errorf("create Leases: %w", err)
	}
	return stage.Parallel(ctx, 0, maps, func(i int) error { return p.createMap(ctx, fmt.Sprintf("updated-%03d", i)) })
}

func (p *plane) createMap(ctx context.Context, name string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"payload": payload}}
	_, err := p.maps.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})
	return err
}

func (p *plane) updateMap(ctx context.Context, name string, edition int) error {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{"payload": payload, "edition": strconv.Itoa(edition)},
	}
	_, err := p.maps.CoreV1().ConfigMaps(namespace).Update(ctx, object, metav1.UpdateOptions{})
	return err
}

// renew renews a Lease as its holder does: with the version that it knows, and not before the last renewal has ended.
func (p *plane) renew(ctx context.Context, i int) error {
	h := &p.leaseSet[i]
	h.Lock()
	defer h.Unlock()
	lease := h.lease.DeepCopy()
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	lease, err := p.leases.CoordinationV1().Leases(namespace).Update(ctx, lease, metav1.UpdateOptions{})
	if err == nil {
		h.lease = lease
	}
	return err
}

func (p *plane) createEvent(ctx context.Context, name string) error {
	_, err := p.events.EventsV1().Events(namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name}, EventTime: metav1.NowMicro(), Action: "Measure", Reason: "Measured",
		Type: corev1.EventTypeNormal, ReportingController: "rota.dev/etcdbench", ReportingInstance: "etcdbench",
		Regarding: corev1.ObjectReference{Kind: "ConfigMap", Namespace: namespace, Name: name}, Note: payload[:200],
	}, metav1.CreateOptions{})
	return err
}

// next returns a number that was not used for a name before.
func (p *plane) next() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.created++
	return p.created
}

// measure runs the load, and the renewals unless the period is 0, and returns the latencies after a while.
func (p *plane) measure(ctx context.Context, o *Options, period time.Duration) (Measured, error) {
	ctx, cancel := context.WithTimeout(ctx, settle+o.Length)
	defer cancel()
	from := time.Now().Add(settle)
	var creates, updates, renewals, events series
	var work sync.WaitGroup
	each := func(perSecond float64) time.Duration { return time.Duration(float64(time.Second) / perSecond) }
	work.Go(func() {
		creates.run(ctx, from, each(o.Rate), func(ctx context.Context, _ int) error {
			return p.createMap(ctx, fmt.Sprintf("created-%06d", p.next()))
		})
	})
	work.Go(func() {
		updates.run(ctx, from, each(o.Rate), func(ctx context.Context, n int) error {
			return p.updateMap(ctx, fmt.Sprintf("updated-%03d", n%maps), p.next())
		})
	})
	if o.Events > 0 {
		work.Go(func() {
			events.run(ctx, from, each(o.Events), func(ctx context.Context, _ int) error {
				return p.createEvent(ctx, fmt.Sprintf("event-%06d", p.next()))
			})
		})
	}
	if period > 0 {
		work.Go(func() {
			renewals.run(ctx, from, period/time.Duration(len(p.leaseSet)), func(ctx context.Context, n int) error {
				return p.renew(ctx, n%len(p.leaseSet))
			})
		})
	}
	work.Wait()
	for _, s := range []*series{&creates, &updates, &renewals, &events} {
		if s.err != nil {
			return Measured{}, s.err
		}
	}
	return Measured{
		Create: creates.latency(), Update: updates.latency(), Renew: renewals.latency(), Event: events.latency(),
	}, nil
}

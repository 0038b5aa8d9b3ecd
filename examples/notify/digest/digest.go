// Package digest tells once a day what fails in the whole cluster.
//
// One process at a time runs it. A digest is written into a ConfigMap first, then sent, then crossed out for each
// destination that took it. So the next process goes on where the former one stopped. Nothing in it knows of Rota.
package digest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/controller"
	"github.com/rota-dev/rota/examples/notify/destination"
	"github.com/rota-dev/rota/examples/notify/notice"
)

const (
	// mostLate is how late a digest may be made. Later, what fails is no news of the day.
	mostLate = 6 * time.Hour
	// poll is how often the clock is looked at. It may be set, and stands still while a machine sleeps.
	poll = time.Second
	// grace is how long a request in flight may go on when the digest moves to another process: until its answer is known,
	// the digest may come twice. A duty of Rota has 5 s before somebody is told that it does not end.
	grace = 4 * time.Second
	// restart is how long a process that is not one of several waits after an error.
	restart = 10 * time.Second
	// turn is the name under which the digest waits for its turn at a destination.
	turn = "digest"
)

// receiver is a destination.
type receiver interface {
	destination.Receiver

	Settled(id string)
}

var _ receiver = (*destination.Destination)(nil)

// Daily tells a digest each day.
type Daily struct {
	schedule  schedule
	zone      string
	store     store
	receivers []receiver
	look      func(context.Context) (notice.Summary, error)
	now       func() time.Time
	poll      time.Duration
}

// New returns the digest of a configuration that has one. It is remembered beside the records.
func New(c *config.Config, kinds []controller.Kind, objects dynamic.Interface, records *controller.Records,
	destinations []*destination.Destination, now func() time.Time,
) *Daily {
	d := &Daily{
		schedule: schedule{after: c.Digest.After, in: c.Digest.Location}, zone: c.Digest.Timezone,
		now: now, poll: poll,
		store: store{
			api: records.ConfigMaps(), namespace: records.Namespace(), name: c.Name + "-digest", notifier: c.Name,
		},
		look: func(ctx context.Context) (notice.Summary, error) {
			s := &survey{}
			for _, k := range kinds {
				if err := k.Survey(ctx, objects, records, s.add); err != nil {
					return notice.Summary{}, err
				}
			}
			return s.summary(), nil
		},
	}
	for _, one := range destinations {
		if slices.Contains(c.Digest.Destinations, one.Name()) {
			d.receivers = append(d.receivers, one)
		}
	}
	return d
}

// clockDays is how many days ahead of the clock the last digest's day may be.
const clockDays = 2

// Run tells a digest each day until ctx ends. Only one process may run it at a time. It returns an error if it cannot
// go on, and then has to be run again.
func (d *Daily) Run(ctx context.Context) error {
	s, err := d.store.read(ctx)
	if err == nil && s.in == nil {
		// What was due before anybody was to tell it was not missed.
		day, _ := d.schedule.newest(d.now())
		s, err = d.store.write(ctx, s, state{Day: day.Format(time.DateOnly)})
	}
	if err != nil {
		return err
	}
	day, err := s.day()
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Digests are told from here", "last", s.Day, "next", d.schedule.next(day))
	for ctx.Err() == nil {
		if s, err = d.make(ctx, s); err != nil {
			return err
		}
		var wait time.Duration
		if s, wait, err = d.send(ctx, s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return nil
}

// Beside returns a function that runs the digest while work runs, for a process that is the only one.
func (d *Daily) Beside(work func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		var running sync.WaitGroup
		running.Go(func() {
			for ctx.Err() == nil {
				if err := d.Run(ctx); err != nil {
					klog.FromContext(ctx).Error(err, "No digest can be told; trying again", "after", restart.String())
				}
				select {
				case <-ctx.Done():
				case <-time.After(restart):
				}
			}
		})
		work(ctx)
		running.Wait()
	}
}

// make makes the newest digest that is due, if it was not made before and is not too late.
func (d *Daily) make(ctx context.Context, old stored) (stored, error) {
	last, err := old.day()
	if err != nil {
		return old, err
	}
	now := d.now()
	day, due := d.schedule.newest(now)
	if last.After(d.schedule.dayOf(now).AddDate(0, 0, clockDays)) {
		// Whoever wrote that had a clock that was ahead, or this one is behind. Without this there would be no digest until
		// then.
		klog.FromContext(ctx).Error(nil, "The last digest was made for a day that has not come: the clock of a replica is "+
			"wrong; going on from today", "made", old.Day, "today", day.Format(time.DateOnly))
		old.Day = day.Format(time.DateOnly)
		return d.store.write(ctx, old, old.state)
	}
	if !day.After(last) {
		return old, nil
	}
	next := state{Day: day.Format(time.DateOnly)}
	late := now.Sub(due)
	if late <= mostLate {
		summary, err := d.look(ctx)
		if err != nil {
			return old, err
		}
		summary.Day, summary.Timezone = next.Day, d.zone
		// The source names the cluster. So the ID tells apart the notifiers in it.
		id := fmt.Sprintf("%s-%s-digest-%s", d.store.namespace, d.store.notifier, next.Day)
		next.Digest = &notice.Digest{ID: id, Time: now.UTC().Truncate(time.Millisecond), Summary: summary}
		for _, r := range d.receivers {
			next.To = append(next.To, r.Name())
		}
	}
	made, err := d.store.write(ctx, old, next)
	if err != nil {
		return old, err
	}
	log := klog.FromContext(ctx).WithValues("day", next.Day, "due", due)
	if old.Digest != nil {
		log.Error(nil, "The digest before was not taken until this one was due: it is dropped", "destinations", old.To)
		for _, name := range old.To {
			if r := d.receiver(name); r != nil {
				r.Settled(old.Digest.ID)
				r.Dropped(destination.TooMany)
			}
		}
	}
	if first := d.schedule.next(last); first.Before(due) {
		log.Error(nil, "Digests were missed: nobody could make them in time", "first", first)
	}
	if next.Digest == nil {
		log.Error(nil, "A digest is left out: nobody could make it in time", "late", late.String())
		return made, nil
	}
	log.Info("A digest is made", "id", next.Digest.ID, "failing", next.Digest.Failing, "late", late.String())
	return made, nil
}

// send sends what waits. It returns the state as it is then, and how long to wait for whatever comes next.
func (d *Daily) send(ctx context.Context, s stored) (stored, time.Duration, error) {
	first := d.poll
	for _, name := range slices.Clone(s.To) {
		var wait time.Duration
		var err error
		if s, wait, err = d.tell(ctx, s, name); err != nil {
			return s, 0, err
		}
		if wait > 0 {
			first = min(first, wait)
		}
	}
	return s, first, nil
}

// tell sends the digest to a destination and crosses it out. It returns how long the destination has to wait; 0: it was
// told, or ctx has ended.
func (d *Daily) tell(ctx context.Context, s stored, name string) (stored, time.Duration, error) {
	if ctx.Err() != nil {
		return s, 0, nil
	}
	lasting, cancel := outlast(ctx)
	defer cancel()
	wait, err := d.sendOne(lasting, *s.Digest, name)
	if err == nil && wait == 0 {
		s, err = d.told(lasting, s, name)
	}
	return s, wait, err
}

// told crosses out a destination.
func (d *Daily) told(ctx context.Context, s stored, name string) (stored, error) {
	next, id := s.state, s.Digest.ID
	next.To = slices.DeleteFunc(slices.Clone(s.To), func(n string) bool { return n == name })
	if len(next.To) == 0 {
		next.Digest = nil
	}
	s, err := d.store.write(ctx, s, next)
	if r := d.receiver(name); err == nil && r != nil {
		r.Settled(id)
	}
	return s, err
}

// sendOne is destination.Tell, if the configuration still has the destination.
func (d *Daily) sendOne(ctx context.Context, n notice.Digest, name string) (time.Duration, error) {
	log := klog.FromContext(ctx).WithValues("destination", name, "event", notice.DigestType, "id", n.ID)
	r := d.receiver(name)
	if r == nil {
		log.Info("The configuration has no such destination any more: the digest is dropped")
		return 0, nil
	}
	return destination.Tell(ctx, log, r, turn, "A digest", n)
}

// receiver returns nil if the configuration has none of that name any more.
func (d *Daily) receiver(name string) receiver {
	for _, r := range d.receivers {
		if r.Name() == name {
			return r
		}
	}
	return nil
}

// outlast returns a context that ends a while after ctx does, and has its values.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(lasting, func() { timer.Stop() })
	})
	return lasting, func() { stop(); cancel() }
}

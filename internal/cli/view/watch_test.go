package view

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// TestRepeat: reads follow changes at once, but no faster than the gap; without changes they follow the time.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changed := make(chan struct{}, 1)
		begun := time.Now()
		var mu sync.Mutex // synctest.Wait tells the test what the other goroutine did, not the other way round
		var reads []time.Duration
		var fail error
		told := 0
		go repeat(ctx, changed, readEvery, func(context.Context) (*Rota, error) {
			mu.Lock()
			defer mu.Unlock()
			reads = append(reads, time.Since(begun))
			return &Rota{}, fail
		}, func(r *Rota, err error) {
			mu.Lock()
			defer mu.Unlock()
			if told++; (err == nil) != (r != nil) {
				t.Errorf("told %v with %v", r, err)
			}
		})
		at := func(d time.Duration) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(reads) != 1 || reads[0] != d || told != 1 {
				t.Errorf("reads %v, told %d times; want one at %v", reads, told, d)
			}
			reads, told = nil, 0
		}
		at(0)
		time.Sleep(readEvery) // of the bubble's clock
		at(readEvery)
		time.Sleep(readEvery / 2)
		changed <- struct{}{}
		at(readEvery * 3 / 2)
		changed <- struct{}{} // too soon: it waits for the gap
		synctest.Wait()
		mu.Lock()
		if len(reads) > 0 {
			t.Errorf("a read within the gap: %v", reads)
		}
		mu.Unlock()
		time.Sleep(readGap)
		at(readEvery*3/2 + readGap)
		mu.Lock()
		fail = errors.New("no connection")
		mu.Unlock()
		time.Sleep(readEvery)
		at(readEvery*5/2 + readGap)
		for range 1000 { // a flood
			select {
			case changed <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := len(reads); n < 3 || n > 5 {
			t.Errorf("%d reads in a second in which everything changes", n)
		}
	})
}

// TestRepeatLimit: a read that hangs ends, and says so.
func TestRepeatLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan error)
		go repeat(ctx, nil, readEvery, func(ctx context.Context) (*Rota, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, func(_ *Rota, err error) {
			select {
			case got <- err:
			case <-ctx.Done():
			}
		})
		begun := time.Now()
		if err := <-got; !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != readLimit {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}

func TestNews(t *testing.T) {
	object := func(kind, version, epoch string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{Kind: kind},
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{"rota.dev/epoch": epoch}},
		}
	}
	for _, c := range []struct {
		name          string
		before, after *metav1.PartialObjectMetadata
		want          bool
	}{
		{"a renewal", object("Lease", "1", "7"), object("Lease", "2", "7"), false},
		{"another epoch", object("Lease", "1", "7"), object("Lease", "2", "8"), true},
		{"a table", object("ConfigMap", "1", ""), object("ConfigMap", "2", ""), true},
	} {
		if got := news(c.before, c.after); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestWatch: on a real API server, changes of the table, of Leases and of reports bring a read each, also after the
// connection was lost. Nothing else does here.
func TestWatch(t *testing.T) {
	plane := controlplane.New(t, controlplane.Options{})
	client, err := kubernetes.NewForConfig(plane.Config())
	require.NoError(t, err)
	const rota = "website"
	ns := plane.Namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		ended <- watch(ctx, plane.Config(), ns, rota, time.Hour, func(context.Context) (*Rota, error) { return &Rota{}, nil },
			func(*Rota, error) { told <- struct{}{} })
	}()
	next := func(what string) {
		t.Helper()
		select {
		case <-told:
		case err := <-ended:
			t.Fatalf("%s: the watch has ended: %v", what, err)
		case <-time.After(3 * time.Minute):
			t.Fatalf("%s: no read", what)
		}
	}
	check := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	next("the first read")
	maps, leases := client.CoreV1().ConfigMaps(ns), client.CoordinationV1().Leases(ns)
	table, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rota}}, metav1.CreateOptions{})
	check(err)
	next("a new table")
	table.Data = map[string]string{"epoch": "1"}
	_, err = maps.Update(ctx, table, metav1.UpdateOptions{})
	check(err)
	next("another table")
	for _, label := range []string{names.LabelRota, names.LabelCoverage} {
		l, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "lease-", Labels: map[string]string{label: rota},
		}}, metav1.CreateOptions{})
		check(err)
		next("a Lease with " + label)
		l.Annotations = map[string]string{names.AnnotationGate: names.GateShut}
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		check(err)
		next("what a Lease with " + label + " says")
		check(leases.Delete(ctx, l.Name, metav1.DeleteOptions{}))
		next("the end of a Lease with " + label)
	}
	check(plane.KillServer("apiserver-0"))
	check(plane.StartServer("apiserver-0"))
	table, err = maps.Get(ctx, rota, metav1.GetOptions{})
	check(err)
	table.Data = map[string]string{"epoch": "2"}
	_, err = maps.Update(ctx, table, metav1.UpdateOptions{})
	check(err)
	next("a table after the connection was lost")
	cancel()
	check(<-ended)
}

package keeper

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/dispatch/queue"
	"github.com/rota-dev/rota/test/require"
)

// The slots are shut, as in a lapse of the Lease, while nobody has finished work on a deletion. It comes again, even if
// another member had the slots meanwhile: that one need not have known of it.
func TestDeletionOutlivesShut(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *Dispatcher){
		"pending": func(*testing.T, *Dispatcher) {},
		"taken":   func(t *testing.T, d *Dispatcher) { t.Helper(); take(t, d, time.Minute) },
		"in back-off": func(t *testing.T, d *Dispatcher) {
			t.Helper()
			got := take(t, d, time.Minute)
			require.NoError(t, d.Done(got[0].ID, "w", queue.Result{Retry: true, After: time.Minute}))
		},
	} {
		for _, remember := range []bool{true, false} {
			for _, handed := range []bool{true, false} {
				t.Run(name, func(t *testing.T) {
					s := &server{list: fine}
					opened(t, s, remember, func(t *testing.T, d *Dispatcher) {
						s.set(true, fine, nil)
						(<-s.watches).Delete(object("8"))
						synctest.Wait()
						before(t, d)
						d.Shut(all)
						d.Shut(all) // a release follows
						require.NoError(t, d.Load(t.Context(), all, handed, nil))
						d.Open(all, 2)
						finish(t, d, true)
						d.Shut(all)
						require.NoError(t, d.Load(t.Context(), all, handed, nil))
						d.Open(all, 3)
						none(t, d, "it is done")
					})
				})
			}
		}
	}
}

// The object is created again while its slot is shut, or while the list goes on.
func TestCreatedAfterShut(t *testing.T) {
	for name, during := range map[string]bool{"before the list": false, "during the list": true} {
		t.Run(name, func(t *testing.T) {
			s := &server{list: fine}
			opened(t, s, false, func(t *testing.T, d *Dispatcher) {
				w := <-s.watches
				w.Delete(object("8"))
				synctest.Wait()
				d.Shut(all)
				if !during {
					w.Add(object("9"))
					synctest.Wait()
				}
				s.set(true, func(context.Context) error {
					if during {
						w.Add(object("9"))
						synctest.Wait()
					}
					return nil
				}, nil)
				require.NoError(t, d.Load(t.Context(), all, false, nil))
				d.Open(all, 2)
				for _, got := range take(t, d, time.Minute) {
					if got.Gone {
						t.Errorf("%+v: the object exists", got)
					}
				}
			})
		})
	}
}

// Deletions of slots that do not come back are forgotten after a time.
func TestKeptForATime(t *testing.T) {
	s := &server{list: fine}
	opened(t, s, false, func(t *testing.T, d *Dispatcher) {
		(<-s.watches).Delete(object("8"))
		synctest.Wait()
		kept := func() int {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.kept.by)
		}
		d.Shut(all)
		if n := kept(); n != 1 {
			t.Errorf("%d deletions are kept, want one", n)
		}
		time.Sleep(keep + time.Minute)
		if n := kept(); n != 0 {
			t.Errorf("%d deletions are kept for ever", n)
		}
	})
}

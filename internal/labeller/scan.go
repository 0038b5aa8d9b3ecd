package labeller

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scan looks at the metadata of every object once, no faster than Options.ScanRate, and rewrites each wrong label. Run
// calls it. Others may also call it while Options.Permit allows; if it does not, Scan ends with ErrNotPermitted. Other
// errors come from lists. If a patch is refused, Scan reports that and continues.
func (l *Labeller) Scan(ctx context.Context) error { return l.scan(ctx, l.opts.Permit) }

// ErrNotPermitted is returned if Options.Permit refuses.
var ErrNotPermitted = errors.New("labeller: this member is not permitted to label objects now")

func (l *Labeller) scan(ctx context.Context, permit Permit) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	enter := func(ctx context.Context) (context.Context, func(), bool) {
		batch, leave, ok := permit(ctx)
		if !ok {
			end(ErrNotPermitted)
		}
		return batch, leave, ok
	}
	var errs []error
	for _, s := range l.scopes() {
		err := l.pages(ctx, s, "", func(page *metav1.PartialObjectMetadataList) bool {
			l.stats.scanned.Add(uint64(len(page.Items)))
			l.patchAll(ctx, l.targets(s, page), enter)
			return sleep(ctx, time.Duration(float32(len(page.Items))/l.opts.ScanRate*float32(time.Second)))
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	l.stats.scans.Add(1)
	return errors.Join(errs...)
}

func (t *tenure) scanLoop(ctx context.Context) {
	t.listing.Wait()
	if t.l.opts.ScanDelay > 0 && !sleep(ctx, t.l.opts.ScanDelay) {
		return
	}
	for ctx.Err() == nil {
		if err := t.l.scan(ctx, t.enter); err != nil && ctx.Err() == nil {
			t.l.opts.Report(err)
		}
		if !sleep(ctx, t.l.opts.ScanPeriod) {
			return
		}
	}
}

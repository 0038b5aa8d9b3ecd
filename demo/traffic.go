package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/journal"
)

// trafficPeriod is the time between two samples of what a replica has received.
const trafficPeriod = 250 * time.Millisecond

// traffic is how many objects of sharded kinds a replica had received from the API server at some time, in lists and in
// events, and how many of them it had not asked for.
type traffic struct {
	at                time.Duration
	received, foreign int
}

// recordTraffic appends samples to a file until ctx ends.
func recordTraffic(ctx context.Context, path string, r *rota.Rota) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for await.Sleep(ctx, trafficPeriod) == nil {
		received, foreign := uint64(0), uint64(0)
		for _, t := range r.Status().Traffic {
			received += t.Received
			foreign += t.Foreign
		}
		if _, err := fmt.Fprintln(file, int64(journal.Now()), received, foreign); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}

// readTraffic returns the samples in a file, in order. A last line without end is left out.
func readTraffic(path string) ([]traffic, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it ended before the first one
	}
	if err != nil {
		return nil, err
	}
	var out []traffic
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		var t traffic
		if _, err := fmt.Sscan(line, &t.at, &t.received, &t.foreign); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, line, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// sumAt returns the sum of the samples of several replicas, each of them the last one up to a time.
func sumAt(all [][]traffic, at time.Duration) (sum traffic) {
	for _, samples := range all {
		last := traffic{}
		for _, t := range samples {
			if t.at <= at {
				last = t
			}
		}
		sum.received += last.received
		sum.foreign += last.foreign
	}
	return sum
}

// traffic returns the samples of all replicas.
func (e *engine) traffic() ([][]traffic, error) {
	var all [][]traffic
	for _, p := range e.all() {
		samples, err := readTraffic(p.trafficPath)
		if err != nil {
			return nil, err
		}
		all = append(all, samples)
	}
	return all, nil
}

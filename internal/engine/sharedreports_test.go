package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
)

// sharedReports is the in-memory twin of coverage.Reports: all members of a rota share one. Its methods may be called
// concurrently.
type sharedReports struct {
	mu      sync.Mutex
	reports map[string]map[string]string
	refusal error
	// others are the reports of other rotas in the namespace, by name.
	others map[string][]*coverage.Report
}

func newSharedReports() *sharedReports {
	return &sharedReports{reports: map[string]map[string]string{}}
}

// Refuse has all writes fail with err from now on, or succeed again with nil.
func (m *sharedReports) Refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusal = err
}

// Publish writes a member's report in place of its last one.
func (m *sharedReports) Publish(_ context.Context, report *coverage.Report, _ types.UID) error {
	data, err := report.Encode()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refusal != nil {
		return m.refusal
	}
	m.reports[report.Member] = data
	return nil
}

// Withdraw deletes a member's report.
func (m *sharedReports) Withdraw(_ context.Context, member string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.reports, member)
	return nil
}

// Read returns all reports, by the order of their members.
func (m *sharedReports) Read(context.Context) ([]*coverage.Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*coverage.Report
	for _, id := range slices.Sorted(maps.Keys(m.reports)) {
		r, err := coverage.Decode(m.reports[id])
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// ReadUnlabelled returns the reports with kinds whose objects cannot all be labelled.
func (m *sharedReports) ReadUnlabelled(ctx context.Context) ([]*coverage.Report, error) {
	all, err := m.Read(ctx)
	return slices.DeleteFunc(all, func(r *coverage.Report) bool { return len(r.Unlabelled) == 0 }), err
}

// ReadAll returns these reports as those of the rota "website", and the others.
func (m *sharedReports) ReadAll(ctx context.Context) (map[string][]*coverage.Report, error) {
	ours, err := m.Read(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.others)
	if all == nil {
		all = map[string][]*coverage.Report{}
	}
	all["website"] = ours
	return all, err
}

// Other replaces the reports of another rota by one.
func (m *sharedReports) Other(rota string, report *coverage.Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.others == nil {
		m.others = map[string][]*coverage.Report{}
	}
	m.others[rota] = []*coverage.Report{report}
}

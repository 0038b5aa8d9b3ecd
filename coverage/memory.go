package coverage

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Memory is the in-memory twin of Reports: all members of a rota share one. Its methods may be called concurrently.
type Memory struct {
	mu      sync.Mutex
	reports map[string]map[string]string
	refusal error
}

// NewMemory returns one without reports.
func NewMemory() *Memory { return &Memory{reports: map[string]map[string]string{}} }

// Refuse has all writes fail with err from now on, or succeed again with nil.
func (m *Memory) Refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusal = err
}

// Publish writes a member's report in place of its last one.
func (m *Memory) Publish(_ context.Context, report *Report, _ types.UID) error {
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
func (m *Memory) Withdraw(_ context.Context, member string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.reports, member)
	return nil
}

// Read returns all reports, by the order of their members.
func (m *Memory) Read(context.Context) ([]*Report, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*Report
	for _, id := range slices.Sorted(maps.Keys(m.reports)) {
		r, err := Decode(m.reports[id])
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

package peer

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// Directory finds the entries of members. It reads the entry of each member once, since it does not change while the
// member has its ID. Its methods may be called concurrently.
type Directory struct {
	read  func(ctx context.Context, id string) (Entry, error)
	names func(id string) bool

	mu      sync.Mutex
	entries map[string]Entry
}

// NewDirectory returns a directory. read reads the entry in a member's Lease. names reports whether the table names a
// member; others are not looked up, so that strangers cannot cause reads.
func NewDirectory(read func(ctx context.Context, id string) (Entry, error), names func(id string) bool) *Directory {
	return &Directory{read: read, names: names, entries: map[string]Entry{}}
}

// Lookup returns the entry of a member.
func (d *Directory) Lookup(ctx context.Context, id string) (Entry, error) {
	if !d.names(id) {
		return Entry{}, fmt.Errorf("the table names no member %q", id)
	}
	d.mu.Lock()
	entry, ok := d.entries[id]
	d.mu.Unlock()
	if ok {
		return entry, nil
	}
	entry, err := d.read(ctx, id)
	if err != nil {
		return Entry{}, fmt.Errorf("read the address of member %s: %w", id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.entries, func(id string, _ Entry) bool { return !d.names(id) })
	d.entries[id] = entry
	return entry, nil
}

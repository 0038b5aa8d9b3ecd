package peer

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Directory finds the entries of members. It reads the entry of each member once, since it does not change while the
// member has its ID. Its methods may be called concurrently.
type Directory struct {
	read  func(ctx context.Context, id string) (Entry, error)
	names func(id string) bool

	mu      sync.Mutex
	entries map[string]lookup
}

// lookup is the result of reading a member's entry.
type lookup struct {
	entry Entry
	err   error
	at    time.Time
}

// errorTime is how long an error is remembered, so that strangers cannot cause many reads.
const errorTime = time.Second

// NewDirectory returns a directory. read reads the entry in a member's Lease. names reports whether the table names a
// member; others are not looked up.
func NewDirectory(read func(ctx context.Context, id string) (Entry, error), names func(id string) bool) *Directory {
	return &Directory{read: read, names: names, entries: map[string]lookup{}}
}

// Lookup returns the entry of a member.
func (d *Directory) Lookup(ctx context.Context, id string) (Entry, error) {
	if !d.names(id) {
		return Entry{}, fmt.Errorf("the table names no member %q", id)
	}
	d.mu.Lock()
	known, ok := d.entries[id]
	d.mu.Unlock()
	if ok && (known.err == nil || time.Since(known.at) < errorTime) {
		return known.entry, known.err
	}
	entry, err := d.read(ctx, id)
	if err != nil {
		err = fmt.Errorf("read the address of member %s: %w", id, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.entries, func(id string, _ lookup) bool { return !d.names(id) })
	if ctx.Err() == nil {
		d.entries[id] = lookup{entry, err, time.Now()}
	}
	return entry, err
}

// check returns an error unless the other side of a connection has the key of a member.
func (d *Directory) check(ctx context.Context, id string, s *tls.ConnectionState) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	entry, err := d.Lookup(ctx, id)
	if err == nil && !entry.matches(s) {
		err = fmt.Errorf("the other side does not have the key in the Lease of member %s", id)
	}
	return err
}

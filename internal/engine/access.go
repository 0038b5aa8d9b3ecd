package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/permission"
)

const (
	// accessTimeout bounds the permission check at startup. The member joins if the check gets no answer.
	accessTimeout = 10 * time.Second
	// accessPatience is how long the check retries while permissions are missing: a new Role takes a moment to take
	// effect.
	accessPatience = 3 * time.Second
)

// access asks the API server whether this member has all permissions it needs: those for the rota's own objects and, if
// the member writes labels, those for the sharded kinds. It returns a permission.MissingError that lists the missing
// ones. It returns nil if the server does not answer; requests that are refused later then report what is missing.
func (r *Engine) access(ctx context.Context) error {
	needs := permission.Needs(r.opts.Namespace, permission.Rules(r.opts.Name))
	if lease := r.opts.electionLease(); lease.Name != "" {
		needs = append(needs, slices.DeleteFunc(permission.Needs(lease.Namespace, permission.ElectionRules(lease.Name)),
			func(need permission.Error) bool { return need.Verb == "list" || need.Verb == "watch" })...) // works without these
	}
	needs = append(needs, r.labels.Needs()...)
	ctx, cancel := context.WithTimeout(ctx, accessTimeout)
	defer cancel()
	for begun := r.now(); ; {
		denied, err := permission.Denied(ctx, r.rest, nil, needs)
		if err != nil {
			r.log.V(1).Info("Cannot ask which permissions are missing", "cause", err.Error())
			return nil
		}
		if len(denied) == 0 {
			return nil
		}
		if r.now()-begun >= accessPatience {
			return fmt.Errorf("delivery %s: %w", r.share.Delivery(),
				&permission.MissingError{Rota: r.opts.Name, Missing: denied})
		}
		_ = await.Sleep(ctx, time.Second)
	}
}

// refusals records the permissions that were missing recently, so that each is reported once and not at every try.
type refusals struct {
	mu       sync.Mutex
	last     map[string]time.Duration // when each was last refused, by namespace and rule
	reported map[string]time.Duration // when each was last reported
}

// refusalQuiet is how long after the last refusal another one counts as new. Tries are at most 30 s apart.
const refusalQuiet = 2 * time.Minute

// refusalAgain is how often a continuing refusal is reported again. API servers delete events after an hour, and
// package view takes a refusal to be over when its last event is old.
const refusalAgain = 10 * time.Minute

// fresh reports whether a refusal is new or was last reported more than refusalAgain ago.
func (f *refusals) fresh(denied *permission.Error, now time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last, f.reported = map[string]time.Duration{}, map[string]time.Duration{}
	}
	about := fmt.Sprint(denied.Namespace, denied.Rule())
	was, known := f.last[about]
	f.last[about] = now
	if known && now-was <= refusalQuiet && now-f.reported[about] < refusalAgain {
		return false
	}
	f.reported[about] = now
	return true
}

// refused reports a missing permission as an event and in the log. It returns false if err is a different error.
func (r *Engine) refused(what string, err error) bool {
	var denied *permission.Error
	if !errors.As(err, &denied) {
		return false
	}
	select {
	case r.denied <- err:
	default:
	}
	if r.refusals.fresh(denied, r.now()) {
		r.emit(context.Background(), member.Notify{Reason: "PermissionMissing", Warning: true,
			Message: what + ": " + denied.Error()})
	} else {
		r.log.V(1).Info(what, "cause", err.Error())
	}
	return true
}

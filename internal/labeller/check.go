package labeller

import (
	"context"
	"errors"

	"github.com/rota-dev/rota/permission"
)

// Needs returns the permissions that the labeller needs, one entry for each.
func (l *Labeller) Needs() []permission.Error {
	var needs []permission.Error
	for _, s := range l.scopes() {
		needs = append(needs, permission.Needs(s.namespace, Rules(s.resource))...)
	}
	return needs
}

// Check asks the API server whether the user may do what the labeller does. It returns the missing permissions as
// joined permission.Errors, and nil if none is missing or the server does not answer.
func (l *Labeller) Check(ctx context.Context) error {
	denied, err := permission.Denied(ctx, l.config, l.http, l.Needs())
	if err != nil {
		return nil //nolint:nilerr // later refusals are reported
	}
	var errs []error
	for _, d := range denied {
		errs = append(errs, d)
	}
	return errors.Join(errs...)
}

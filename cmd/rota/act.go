package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
)

const (
	// actTimeout bounds one change of the table, including retries.
	actTimeout = 20 * time.Second
	// waitPoll is the time between two polls of --wait. Progress is printed again after waitNews if nothing has changed.
	waitPoll = 500 * time.Millisecond
	waitNews = 10 * time.Second
)

// actor carries out an order: it changes a rota's table.
type actor struct {
	target  rotaFlags
	reason  string
	wait    bool
	timeout time.Duration

	cmd    *cobra.Command
	cfg    *rest.Config
	rota   types.NamespacedName
	store  *store.Kubernetes
	reader *view.Reader
}

// bind adds the flags that all orders share.
func (a *actor) bind(cmd *cobra.Command) { a.target.bind(cmd) }

func (a *actor) bindReason(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.reason, "reason", "", "why, for rota status and the event; at most 256 bytes")
}

func (a *actor) bindWait(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&a.wait, "wait", false, "wait until "+what)
	cmd.Flags().DurationVar(&a.timeout, "timeout", 5*time.Minute, "how long to --wait, at least 1s")
}

// on wraps an order in the function of a command with the argument [NAME].
func (a *actor) on(order func() error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.open(cmd, args); err != nil {
			return err
		}
		defer a.close()
		return order()
	}
}

// onFirst is on for a command with another argument before [NAME].
func (a *actor) onFirst(order func(string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.on(func() error { return order(args[0]) })(cmd, args[1:])
	}
}

// open finds the rota. The caller must close the actor.
func (a *actor) open(cmd *cobra.Command, rota []string) error {
	if len(a.reason) > table.MaxOrderText {
		return usagef("%s: --reason: has %d bytes, of at most %d", cmd.Name(), len(a.reason), table.MaxOrderText)
	}
	if a.wait && a.timeout < time.Second {
		return usagef("%s: --timeout %v: must be at least 1s", cmd.Name(), a.timeout)
	}
	cfg, name, err := a.target.loadRota(cmd.Context(), rota)
	if err != nil {
		return err
	}
	a.cmd, a.cfg, a.rota = cmd, cfg, name
	report := func(what string, err error) {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "rota: %s: %s\n", strings.ToLower(what[:1])+what[1:], oneLine(err))
	}
	options := store.Options{Namespace: name.Namespace, Name: name.Name, Instance: "rota", Report: report}
	if a.store, err = store.NewKubernetes(cfg, options); err != nil {
		return err
	}
	if a.reader, err = view.NewReader(cfg, name.Namespace, name.Name); err != nil {
		a.store.Close()
	}
	return err
}

func (a *actor) close() {
	a.store.Close()
	a.reader.Close()
}

// by returns who gives the order. An old API server does not serve SelfSubjectReviews; then the user is empty.
func (a *actor) by(ctx context.Context) orders.By {
	by := orders.By{At: time.Now(), Reason: a.reason}
	client, err := kubernetes.NewForConfig(a.cfg)
	if err != nil {
		return by
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil {
		by.User = review.Status.UserInfo.Username
	}
	return by
}

// give gives an order, and emits an event if the order changed something.
func (a *actor) give(change func(*table.Table, orders.By) error, reason string, what func() string,
) (t *table.Table, changed bool, err error) {
	ctx, cancel := context.WithTimeout(a.cmd.Context(), actTimeout)
	defer cancel()
	by := a.by(ctx)
	t, changed, err = orders.Give(ctx, a.store, a.reader.Epochs, func(t *table.Table) error { return change(t, by) })
	if err != nil {
		return nil, false, a.failed(err)
	}
	if changed {
		message := what()
		if by.User != "" {
			message += ", requested by " + by.User
		}
		a.store.Notify(ctx, member.Notify{Reason: reason, Message: message + prefixed(": ", by.Reason)})
	}
	return t, changed, nil
}

// failed adds the exit code and the rota's name to an order's error.
func (a *actor) failed(err error) error {
	code := codeOf(err)
	var unknown *orders.MemberError
	switch {
	case errors.Is(err, orders.ErrMissing):
		code = exitMissing
	case errors.Is(err, orders.ErrConflict):
		code = exitConflict
	case errors.As(err, &unknown) && unknown.Several:
		code = exitUsage
	case errors.As(err, &unknown):
		code = exitMissing
	}
	return withCode(code, fmt.Errorf("rota %s: %w", a.rota, err))
}

// temporary reports whether an error of the API server may soon pass.
func temporary(err error) bool {
	code := codeOf(err)
	return code == exitUnreachable || code == exitConflict || apierrors.IsInternalError(err) ||
		apierrors.IsUnexpectedServerError(err)
}

// await polls the table until look is done or fails, and prints its text when it changes, or every waitNews. It keeps
// trying while the API server does not answer.
func (a *actor) await(look func(*table.Table) (text string, done bool, err error)) error {
	ctx, cancel := context.WithTimeout(a.cmd.Context(), a.timeout)
	defer cancel()
	begun, last, printed := time.Now(), "", time.Time{}
	for {
		switch t, err := readTable(ctx, a.store); {
		case err != nil && (ctx.Err() == nil && !temporary(err) || ctx.Err() != nil && last == ""):
			return a.failed(err)
		case err != nil && ctx.Err() == nil:
			if text := oneLine(err) + ", retrying"; text != last || time.Since(printed) >= waitNews {
				a.progress("rota: %s", text)
				last, printed = text, time.Now()
			}
		case err == nil:
			text, done, err := look(t)
			if done || err != nil {
				return err
			}
			if text != last || time.Since(printed) >= waitNews {
				a.progress("%s (after %v)", text, time.Since(begun).Round(time.Second))
				last, printed = text, time.Now()
			}
		}
		select {
		case <-time.After(waitPoll):
		case <-ctx.Done():
			if err := a.cmd.Context().Err(); err != nil {
				return err
			}
			return withCode(exitConflict, fmt.Errorf("rota %s: not done after %v: %s; `rota status` shows the reason",
				a.rota, a.timeout, last))
		}
	}
}

// progress prints to standard error.
func (a *actor) progress(format string, args ...any) {
	_, _ = fmt.Fprintf(a.cmd.ErrOrStderr(), format+"\n", args...)
}

// result prints to standard output.
func (a *actor) result(format string, args ...any) {
	_, _ = fmt.Fprintf(a.cmd.OutOrStdout(), format+"\n", args...)
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// fixed returns a function that returns text.
func fixed(text string) func() string { return func() string { return text } }

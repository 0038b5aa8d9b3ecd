package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
)

func newDrain() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:   "drain MEMBER [NAME]",
		Short: "Move a member's slots and duties to others",
		Long: `Moves a member's slots and duties to other members, and gives it none until it is undrained. Its process keeps
running. MEMBER is a member's ID or the name of its Pod.

The member stays drained if its container restarts; a new Pod is not drained. It keeps duties that no other member can
run, and everything if it is the only member.`,
		Example: `  rota drain web-1-p3m9q website -n operators --reason "bad node"
  rota drain web-1 -n operators --wait`,
		Args: oneMember,
		RunE: a.onFirst(a.drain),
	}
	a.bind(cmd)
	a.bindReason(cmd)
	a.bindWait(cmd, "the member has nothing left")
	cmd.ValidArgsFunction = a.target.completeMembers
	return cmd
}

// oneMember accepts a member and, optionally, the name of its rota.
func oneMember(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 1, 2:
		return nil
	case 0:
		return errors.New("give a member's ID or the name of its Pod: `rota status -o name` lists the members")
	}
	return fmt.Errorf("give one member, and the name of one rota; got %d arguments", len(args))
}

func (a *actor) drain(name string) error {
	var m table.Member
	t, changed, err := a.give(func(t *table.Table, by orders.By) (err error) {
		if m, err = orders.Find(t, name); err != nil {
			return err
		}
		return orders.Drain(t, m.ID, by)
	}, eventDrained, func() string {
		return "member " + m.ID + " gives its slots and duties to others, and gets none"
	})
	if err != nil {
		return err
	}
	for _, d := range t.Drains {
		if d.ID == m.ID && !changed {
			a.result("rota %s: member %s is drained already, %s", a.rota, m.ID, sinceBy(d.Since, d.By, d.Reason))
		}
	}
	rest := orders.RestOf(t, m.ID)
	if changed {
		a.result("rota %s: member %s is drained; it has %s and %s to give up", a.rota, m.ID, counted(rest.Slots, "slot"),
			counted(rest.Duties, "duty"))
	}
	for _, warning := range drainHeld(t, m.ID) {
		a.progress("rota: %s", warning)
	}
	for _, p := range t.UnmetPins() {
		if drained, _ := t.Member(m.ID); table.HasLabels(drained.Labels, p.Labels) {
			a.progress("rota: %s is pinned to members with the labels %s, and there is no other such member: it goes to any "+
				"member", p.Object,
				p.Labels)
		}
	}
	if !a.wait {
		return nil
	}
	return a.await(func(t *table.Table) (string, bool, error) { return a.drainProgress(t, m.ID) })
}

// drainHeld returns why a drained member keeps slots or duties.
func drainHeld(t *table.Table, id string) (why []string) {
	rest := orders.RestOf(t, id)
	switch {
	case rest.Done():
	case rest.Alone:
		why = append(why, "the member keeps its slots and duties, because all others are drained or leaving")
	case t.Paused():
		why = append(why, "moves are paused, so the member keeps its slots and duties until `rota resume`")
	}
	if len(rest.Only) > 0 {
		why = append(why, "the member keeps what no other member can run: duty "+strings.Join(rest.Only, ", "))
	}
	return why
}

func (a *actor) drainProgress(t *table.Table, id string) (string, bool, error) {
	_, there := t.Member(id)
	rest := orders.RestOf(t, id)
	switch {
	case !there:
		a.result("rota %s: member %s has left the rota", a.rota, id)
		return "", true, nil
	case !t.Drained(id):
		return "", false, withCode(exitConflict, fmt.Errorf("rota %s: member %s is no longer drained: someone undrained it, "+
			"or a process of an older release wants to join", a.rota, id))
	case rest.Done():
		a.result("rota %s: member %s has nothing left to give%s", a.rota, id,
			prefixed("; ", strings.Join(drainHeld(t, id), "; ")))
		return "", true, nil
	case rest.Alone || t.Paused():
		return "", false, fmt.Errorf("rota %s: %s", a.rota, strings.Join(drainHeld(t, id), "; "))
	}
	return fmt.Sprintf("%s has %s and %s left", id, counted(rest.Slots, "slot"), counted(rest.Duties, "duty")), false, nil
}

func newUndrain() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:     "undrain MEMBER [NAME]",
		Short:   "Give a drained member slots and duties again",
		Example: `  rota undrain web-1-p3m9q website -n operators`,
		Args:    oneMember,
		RunE:    a.onFirst(a.undrain),
	}
	a.bind(cmd)
	cmd.ValidArgsFunction = a.target.completeMembers
	return cmd
}

func (a *actor) undrain(name string) error {
	id := name
	_, changed, err := a.give(func(t *table.Table, _ orders.By) (err error) {
		id, err = orders.Undrain(t, name)
		return err
	}, eventUndrained, func() string { return "member " + id + " gets slots and duties again" })
	switch {
	case err != nil:
		return err
	case changed:
		a.result("rota %s: member %s gets slots again", a.rota, id)
	default:
		a.result("rota %s: member %s is not drained", a.rota, id)
	}
	return nil
}

// completeMembers completes the arguments MEMBER and NAME.
func (f *rotaFlags) completeMembers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return f.members(cmd, nil)
	case 1:
		return f.completeRotas(cmd, nil, "")
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// members returns the IDs of a rota's members for completion. args contains the rota's name or is empty.
func (f *rotaFlags) members(cmd *cobra.Command, args []string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, func(ctx context.Context, cfg *rest.Config, namespace string) (out []string, err error) {
		name, err := theRota(ctx, cfg, namespace, args)
		if err != nil {
			return nil, err
		}
		kube, err := store.NewKubernetes(cfg, store.Options{Namespace: namespace, Name: name})
		if err != nil {
			return nil, err
		}
		defer kube.Close()
		t, err := readTable(ctx, kube)
		if err != nil {
			return nil, err
		}
		for _, m := range t.Members {
			out = append(out, m.ID)
		}
		return out, nil
	})
}

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/report"
	"github.com/rota-dev/rota/slot"
)

func newRebalance() *cobra.Command {
	a := &actor{}
	var out output
	dryRun := false
	cmd := &cobra.Command{
		Use:   "rebalance [NAME]",
		Short: "Even out slots and duties now",
		Long: `Begins the moves that make the members' shares even.

Members do that by themselves. But for ten minutes after the last join in a rollout they leave some to have more than
others, since most slots will soon move once more. And a member that joins waits a moment for its share. This command
waits for neither. Its plan is that of the members: drained members get nothing, and members that leave or died are not
its business. If all members plan by load, so does it, by what they report, with as many moves as it takes.

With --dry-run it only shows what would move. That also works while moves are paused: it then shows what they would
begin with.`,
		Example: `  rota rebalance website -n operators --dry-run
  rota rebalance -n operators --wait`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.open(cmd, args); err != nil {
				return err
			}
			defer a.close()
			return a.rebalance(out, dryRun)
		},
	}
	a.bind(cmd)
	a.bindReason(cmd)
	a.bindWait(cmd, "all moves are over")
	out.bind(cmd, "table", "json", "yaml")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would move, and change nothing")
	cmd.ValidArgsFunction = a.target.completeRotas
	return cmd
}

// shift is what a rebalance moves.
type shift struct {
	DryRun  bool         `json:"dryRun"`
	Moves   []shiftMove  `json:"moves"`
	Members []shiftShare `json:"members"`
}

type shiftMove struct {
	Slots string `json:"slots,omitempty"`
	Count int    `json:"count"`
	Duty  string `json:"duty,omitempty"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// shiftShare is what a member has now, and once all moves are over.
type shiftShare struct {
	ID     string `json:"id"`
	Slots  int    `json:"slots"`
	After  int    `json:"slotsAfter"`
	Duties int    `json:"duties"`
	Later  int    `json:"dutiesAfter"`
}

// shiftOf compares two tables.
func shiftOf(before, after *table.Table, dryRun bool) shift {
	out := shift{DryRun: dryRun, Moves: []shiftMove{}, Members: []shiftShare{}}
	shares := map[string]*shiftShare{}
	for _, m := range after.Members {
		shares[m.ID] = &shiftShare{ID: m.ID}
	}
	sets := map[shiftMove]*slot.Set{}
	var order []shiftMove
	for s := range slot.Slot(after.Total()) {
		was, is := before.At(s), after.At(s)
		to := is.Next
		if to == "" {
			to = is.Owner
		}
		duty := after.IsDuty(s)
		if share := shares[was.Owner]; share != nil {
			share.add(&share.Slots, &share.Duties, duty)
		}
		if share := shares[to]; share != nil {
			share.add(&share.After, &share.Later, duty)
		}
		if is.Next == was.Next {
			continue
		}
		m := shiftMove{Duty: after.Duty(s), From: is.Owner, To: is.Next}
		if sets[m] == nil {
			sets[m] = &slot.Set{}
			order = append(order, m)
		}
		sets[m].Add(s)
	}
	for _, m := range order {
		set := *sets[m]
		if m.Count = set.Len(); m.Duty == "" {
			m.Slots = view.SlotsText(runsOf(set)...)
		}
		out.Moves = append(out.Moves, m)
	}
	for _, m := range after.Members {
		out.Members = append(out.Members, *shares[m.ID])
	}
	return out
}

func (*shiftShare) add(slots, duties *int, duty bool) {
	if duty {
		slots = duties
	}
	*slots++
}

func runsOf(set slot.Set) (runs []view.Run) {
	for _, r := range set.Ranges() {
		runs = append(runs, view.Run{First: int(r.First), Last: int(r.Last)})
	}
	return runs
}

func (a *actor) rebalance(out output, dryRun bool) error {
	var before, after *table.Table
	seen, err := a.look()
	if err != nil {
		return err
	}
	silent, unread := silent(seen)
	switch {
	case unread != "" && dryRun:
		a.say("rota: nobody knows whether the members renew their Leases, which could not be read: %s", unread)
	case unread != "":
		if _, err := a.reader.Told(a.cmd.Context()); err != nil { // names the missing permission
			return a.failed(err)
		}
		return withCode(exitConflict, fmt.Errorf("rota %s: the Leases could not be read: %s; try again", a.rota, unread))
	}
	loads, err := a.loads(seen, dryRun)
	if err != nil {
		return err
	}
	if dryRun {
		if before, err = readTable(a.cmd.Context(), a.store); err != nil {
			return a.failed(err)
		}
		free := before.Clone()
		free.Pause = table.Pause{}
		if after, err = member.Rebalance(free, time.Now().Unix(), loads); err != nil {
			return withCode(exitConflict, fmt.Errorf("rota %s: %w", a.rota, err))
		}
		for _, id := range silent {
			a.say("rota: member %s does not renew its Lease: `rota rebalance` would refuse, and others soon take its slots", id)
		}
		if before.Paused() {
			a.say("rota: moves are paused, so none begins before `rota resume`")
		}
	} else {
		after, _, err = a.give(func(t *table.Table, by orders.By) error {
			before = t.Clone()
			return orders.Rebalance(t, by.At, silent, loads)
		}, eventRebalanced, says("slots and duties are evened out"))
		if err != nil {
			return err
		}
	}
	s := shiftOf(before, after, dryRun)
	if done, err := out.data(a.cmd.OutOrStdout(), s); err != nil {
		return err
	} else if !done {
		printShift(a.cmd.OutOrStdout(), s)
	}
	if !a.wait || dryRun {
		return nil
	}
	return a.await(func(t *table.Table) (string, bool, error) {
		moving := orders.Moving(t)
		return counted(moving, "slot") + " and duties moving yet", moving == 0, nil
	})
}

// loadsAfter is how long after a handover a member's report says how busy the slot keeps it.
const loadsAfter = time.Minute

// loads returns what members report of their loads. It is an error if some plan by load and nobody can know theirs yet,
// and if there are no reports because they could not be read, unless moves are only shown.
func (a *actor) loads(r *view.Rota, dryRun bool) ([]member.LoadReport, error) {
	reports := slices.Collect(maps.Values(r.Reports))
	loads := report.Loads(reports)
	byLoad := slices.ContainsFunc(loads, func(r member.LoadReport) bool { return r.ByLoad })
	for _, u := range r.Unknown {
		switch {
		case u.What != "reports" || !byLoad && len(reports) > 0:
		case dryRun && !byLoad:
			a.say("rota: nobody knows whether the members plan by load, since their reports could not be read: this is a plan "+
				"by number: %s", u.Error)
		default:
			return nil, a.failed(u.Err)
		}
	}
	for _, told := range reports {
		for _, h := range told.Handovers {
			if age := time.Since(h.Ended); byLoad && age < loadsAfter {
				return nil, withCode(exitConflict, fmt.Errorf("rota %s: slots came to member %s %v ago, and how busy they keep it "+
					"is not known yet: try again in a minute", a.rota, told.Member, age.Round(time.Second)))
			}
		}
	}
	return loads, nil
}

// look reads the rota once.
func (a *actor) look() (r *view.Rota, err error) {
	err = within(a.cmd.Context(), func(ctx context.Context) error {
		if r, err = a.reader.Read(ctx); err != nil {
			return viewError(err)
		}
		return nil
	})
	return r, err
}

// silent returns the members that do not renew their Leases, or why these could not be read.
func silent(r *view.Rota) (ids []string, unread string) {
	unread, bad := r.Unread("Leases")
	if bad {
		return nil, unread
	}
	for _, m := range r.Members {
		if m.State == view.Silent || m.State == view.Stopped || m.Renewed == nil {
			ids = append(ids, m.ID)
		}
	}
	return ids, ""
}

func printShift(w io.Writer, s shift) {
	slots, duties := 0, 0
	for _, m := range s.Moves {
		if m.Duty != "" {
			duties++
		} else {
			slots += m.Count
		}
	}
	verb := "move"
	if s.DryRun {
		verb = "would move"
	}
	if slots+duties == 0 {
		_, _ = fmt.Fprintln(w, "nothing to move: slots and duties are as even as they can be")
	} else {
		_, _ = fmt.Fprintf(w, "%s and %s %s\n", counted(slots, "slot"), counted(duties, "duty"), verb)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nMEMBER\tSLOTS\tAFTER\tDUTIES\tAFTER")
	for _, m := range s.Members {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", m.ID, m.Slots, m.After, m.Duties, m.Later)
	}
	_ = t.Flush()
}

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Reasons of the events that orders about canaries leave.
const (
	eventCanaryStarted = "CanaryStarted"
	eventCanaryAsked   = "CanaryPromoted"
	eventCanaryAborted = "CanaryBack"
)

func newCanary() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "canary",
		Short: "Give a new build a share of the objects first",
		Long: `Gives a new build a share of the slots, compares its reconciles with those of other builds, and takes the
slots back if it is worse (docs/operations.md).`,
	}
	cmd.AddCommand(newCanaryStart(), newCanaryStatus(), newCanaryPromote(), newCanaryAbort())
	return cmd
}

// canaryFlags are those of canary start.
type canaryFlags struct {
	build, share      string
	namespaces, steps []string
	every             time.Duration
	expect            bool
}

func newCanaryStart() *cobra.Command {
	a, f := &actor{}, &canaryFlags{}
	cmd := &cobra.Command{
		Use:   "start [NAME] --build BUILD",
		Short: "Give members of a build a share of the slots, or some namespaces",
		Long: `Gives members of a build a share of the slots, or those of some namespaces, and no others. Start the canary
before its Pods, with --expect, or they get a share as any member does.

With --steps and --every the share grows. A step takes at least --every, and 300 reconciles on both sides without a
difference that matters. After the last step, or instead of a step of 100, the build is promoted. Without --every
nothing grows by itself, but a canary that is worse still goes back.`,
		Example: `  rota canary start website -n operators --build v2 --share 5% --expect
  rota canary start -n operators --build v2 --steps 5,20,50,100 --every 10m
  rota canary start -n operators --build v2 --namespaces team-a,team-b --steps 20,100 --every 1h`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			want, err := f.canary()
			if err != nil {
				return err
			}
			if err := a.open(cmd, args); err != nil {
				return err
			}
			defer a.close()
			if !want.Expect {
				if err := a.exist(want.Namespaces); err != nil {
					return err
				}
			}
			return a.startCanary(want)
		},
	}
	a.bind(cmd)
	a.bindReason(cmd)
	cmd.Flags().StringVar(&f.build, "build", "", "the new build, as rota status shows it")
	cmd.Flags().StringVar(&f.share, "share", "", "its share of the slots, from 1% to 99%, rounded up to whole slots")
	cmd.Flags().StringSliceVar(&f.namespaces, "namespaces", nil,
		"namespaces that it has, if the rota shares objects by namespace")
	cmd.Flags().StringSliceVar(&f.steps, "steps", nil, "rising shares in percent, such as 5,20,50,100; 100 promotes it")
	cmd.Flags().DurationVar(&f.every, "every", 0, "least time of each step; 0: until somebody promotes or aborts")
	cmd.Flags().BoolVar(&f.expect, "expect", false, "its members are yet to come")
	return cmd
}

// canary checks the flags.
func (f *canaryFlags) canary() (c orders.Canary, err error) {
	c = orders.Canary{Build: f.build, Every: f.every, Expect: f.expect}
	switch {
	case f.build == "":
		return c, usagef("canary start: --build: say which build; `rota status` shows those of the members")
	case f.build == table.None:
		return c, usagef("canary start: --build: %q stands for none: give the members a build, by --rota-build", f.build)
	case strings.ContainsAny(f.build, " \t\r\n"):
		return c, usagef("canary start: --build %q: must be one word", f.build)
	case f.share == "" && len(f.steps) == 0 && len(f.namespaces) == 0:
		return c, usagef("canary start: say how much it gets: --share 5%%, --steps 5,20,50,100, or --namespaces")
	case f.every < 0 || f.every > 0 && f.every < time.Second || f.every > table.MaxCanaryEvery*time.Second:
		return c, usagef("canary start: --every %v: must be from 1s to 720h, or 0", f.every)
	case len(f.steps) > 0 && f.every == 0:
		return c, usagef("canary start: --steps: say how long each lasts, by --every; or give one --share, and promote by " +
			"hand")
	case len(f.steps)+1 > table.MaxCanarySteps:
		return c, usagef("canary start: --steps: has %d, of at most %d", len(f.steps), table.MaxCanarySteps-1)
	case len(f.namespaces) > table.MaxCanaryNamespaces:
		return c, usagef("canary start: --namespaces: has %d, of at most %d", len(f.namespaces), table.MaxCanaryNamespaces)
	}
	for _, name := range f.namespaces {
		if reasons := validation.IsDNS1123Label(name); len(reasons) > 0 {
			return c, usagef("canary start: --namespaces: %q is no namespace's name: %s", name, strings.Join(reasons, "; "))
		}
	}
	c.Namespaces = f.namespaces
	if f.share == "" && len(f.namespaces) > 0 {
		c.Steps = append(c.Steps, 0) // these alone, at first
	}
	if f.share != "" {
		percent, err := percentOf(f.share)
		if err != nil {
			return c, usagef("canary start: --share %s: %w", f.share, err)
		}
		c.Steps = append(c.Steps, percent)
	}
	for _, text := range f.steps {
		percent, err := percentOf(text)
		if err != nil {
			return c, usagef("canary start: --steps: %s: %w", text, err)
		}
		if n := len(c.Steps); n > 0 && c.Steps[n-1] >= percent {
			if n == 1 && f.share != "" && c.Steps[0] == percent {
				continue // --share 5% --steps 5,20
			}
			return c, usagef("canary start: --steps: %d%% comes after %d%%: each step must be larger than the one before",
				percent, c.Steps[n-1])
		}
		c.Steps = append(c.Steps, percent)
	}
	if c.Steps[0] == 100 {
		return c, usagef("canary start: a share of 100%% leaves nobody to compare it with: give it less first; as the last " +
			"of --steps, 100 promotes it")
	}
	return c, nil
}

// percentOf reads a share, with or without the sign.
func percentOf(text string) (int, error) {
	percent, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	switch {
	case err != nil:
		return 0, errors.New("must be a whole number of percent, such as 5%")
	case percent < 1 || percent > 100:
		return 0, errors.New("must be from 1% to 100%")
	}
	return percent, nil
}

// exist refuses namespaces that there are not. Who may not look is told that nobody has.
func (a *actor) exist(namespaces []string) error {
	client, err := kubernetes.NewForConfig(a.cfg)
	if err != nil {
		return err
	}
	for _, name := range namespaces {
		_, err := client.CoreV1().Namespaces().Get(a.cmd.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return missingf("rota %s: there is no namespace %s; if it is yet to come, say --expect", a.rota, name)
		case err != nil:
			a.say("rota: whether namespace %s exists is not known: %s", name, oneLine(err))
		}
	}
	return nil
}

func (a *actor) startCanary(want orders.Canary) error {
	t, _, err := a.give(func(t *table.Table, by orders.By) error { return orders.StartCanary(t, want, by) },
		eventCanaryStarted, says("the canary of build "+want.Build+" is started"))
	if err != nil {
		return err
	}
	set := t.CanarySlots()
	a.tell("rota %s: the canary of build %s is started: its members own %s, and no others", a.rota, want.Build,
		counted(set.Len(), "slot"))
	if !slices.ContainsFunc(t.Members, t.Apart) {
		a.say("rota: no member of build %s is there yet; the others have all slots until one joins", want.Build)
	}
	if canary, others := orders.Heaviest(t); slices.ContainsFunc(t.Members, t.Apart) && canary > 2*others {
		a.say("rota: in its last step each member of build %s has %d slots, of which each other member had %d: start more "+
			"members of it before that", want.Build, canary, others)
	}
	for _, warning := range canaryHeld(t) {
		a.say("rota: %s", warning)
	}
	return nil
}

// canaryHeld says why a canary does not get its slots.
func canaryHeld(t *table.Table) (why []string) {
	if t.Paused() {
		why = append(why, "moves are paused, so that it gets its slots when they go on: `rota resume`")
	}
	var drained []string
	others := false
	for _, m := range t.Members {
		switch {
		case !t.Apart(m):
		case t.Drained(m.ID):
			drained = append(drained, m.ID)
		default:
			others = true
		}
	}
	if len(drained) > 0 && !others {
		why = append(why, "all its members are drained, so that the others have its slots: "+strings.Join(drained, ", "))
	}
	return why
}

func newCanaryStatus() *cobra.Command {
	var out output
	var target rotaFlags
	cmd := &cobra.Command{
		Use:     "status [NAME]",
		Short:   "Show how far a canary is, and how it is judged",
		Example: `  rota canary status website -n operators`,
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, rota, err := target.loadRota(cmd.Context(), args)
			if err != nil {
				return err
			}
			r, err := view.Read(cmd.Context(), cfg, rota.Namespace, rota.Name)
			if err != nil {
				return missingRota(cmd.Context(), cfg, rota, err)
			}
			if r.Canary == nil {
				return missingf("rota %s: %w", rota, orders.ErrNoCanary)
			}
			if done, err := out.data(cmd.OutOrStdout(), r.Canary); done {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(canaryLines(newPaint(cmd, cmd.OutOrStdout()), r), "\n"))
			return err
		},
	}
	target.bind(cmd)
	out.bind(cmd, "table", "json", "yaml")
	return cmd
}

// canaryLines describe a canary.
func canaryLines(p paint, r *view.Rota) []string {
	c := r.Canary
	head := fmt.Sprintf("the canary of build %s", c.Build)
	asked := fmt.Sprintf("asked for %s ago%s%s", age(c.Since, r.At), prefixed(" by ", c.By), prefixed(": ", c.Reason))
	var lines []string
	switch c.State {
	case view.WentBack:
		return []string{p.bad(head+" has gone back") + ": " + c.Verdict, "  " + asked,
			"  " + view.CanaryCure(c)}
	case view.Promoted:
		return []string{head + " is promoted: no slot goes from it to another build any more; " + asked,
			fmt.Sprintf("  %d members of it have %d of %d slots; it is over when no member of another build is left",
				c.Members, c.Owned, r.Slots)}
	case view.Awaited:
		lines = append(lines, p.warn(head+" waits for a member")+"; "+asked)
	default:
		lines = append(lines, fmt.Sprintf("%s runs; %s", head, asked))
	}
	lines = append(lines, fmt.Sprintf("  step %d of %d (%s): %d members of it own %d of its %d slots, of %d", c.Step+1,
		len(c.Steps), strings.Join(c.StepTexts(), ", "), c.Members, c.Owned, c.Slots, r.Slots))
	if len(c.Namespaces) > 0 {
		lines = append(lines, "  namespaces: "+strings.Join(c.Namespaces, ", "))
	}
	if c.Began == nil && c.State == view.Running {
		lines = append(lines, "  the step begins when its members have its slots")
	}
	if c.Began != nil {
		every := "until somebody promotes or aborts it"
		if c.Every > 0 {
			every = fmt.Sprintf("at least %v", time.Duration(c.Every*float64(time.Second)))
		}
		lines = append(lines, fmt.Sprintf("  the step began %s ago and lasts %s", age(*c.Began, r.At), every),
			"  "+c.Judged+": "+strings.ReplaceAll(c.Text, "; others:", ";\n    others:"))
	}
	return lines
}

func newCanaryPromote() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:   "promote [NAME]",
		Short: "Let the canary's build take over",
		Long: `Ends the trial: the canary's members get shares as all others do, and give no slots back to other builds. Roll
the others out. The canary ends when none of them is left.`,
		Example: `  rota canary promote website -n operators`,
		Args:    oneName,
		RunE: a.on(func() error {
			build := ""
			_, changed, err := a.give(func(t *table.Table, _ orders.By) error {
				build = t.Canary.Build
				return orders.PromoteCanary(t)
			}, eventCanaryAsked, func() string { return "build " + build + " takes over" })
			switch {
			case err != nil:
				return err
			case changed:
				a.tell("rota %s: build %s is promoted: roll the other members out to it", a.rota, build)
			default:
				a.tell("rota %s: build %s is promoted already", a.rota, build)
			}
			return nil
		}),
	}
	a.bind(cmd)
	return cmd
}

func newCanaryAbort() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:   "abort [NAME]",
		Short: "Give the canary's slots back to the other builds",
		Long: `Gives the canary's slots back to the other builds. Its members then get nothing as long as there are others.
Take them away, and abort again to end it.`,
		Example: `  rota canary abort website -n operators --reason "wrong image"
  rota canary abort -n operators --wait`,
		Args: oneName,
		RunE: a.on(a.abortCanary),
	}
	a.bind(cmd)
	a.bindReason(cmd)
	a.bindWait(cmd, "no member of its build has slots")
	return cmd
}

func (a *actor) abortCanary() error {
	build, over := "", false
	t, changed, err := a.give(func(t *table.Table, by orders.By) error {
		if build != "" && !t.Canary.On() {
			return orders.ErrAsItIs // a write of which nobody knew took effect
		}
		build = t.Canary.Build
		err := orders.AbortCanary(t, by)
		over = !t.Canary.On()
		return err
	}, eventCanaryAborted, func() string {
		if over {
			return "the canary of build " + build + " ends"
		}
		return "the canary of build " + build + " goes back to the other builds"
	})
	switch {
	case err != nil:
		return err
	case !changed && t.Canary.On():
		a.tell("rota %s: the canary of build %s has gone back already: %s", a.rota, build, t.Canary.Verdict)
	case !t.Canary.On():
		a.tell("rota %s: the canary of build %s ends; none of its members is there", a.rota, build)
		return nil
	default:
		a.tell("rota %s: the canary of build %s goes back", a.rota, build)
	}
	if t.Paused() {
		a.say("rota: moves are paused, so that it keeps its slots until they go on: `rota resume`")
	}
	if !a.wait {
		return nil
	}
	return a.await(func(t *table.Table) (string, bool, error) {
		if !t.Canary.On() || t.Canary.State != table.CanaryBack || t.Canary.Build != build {
			return "", false, withCode(exitConflict, fmt.Errorf("rota %s: somebody changed the canary meanwhile", a.rota))
		}
		left := 0
		for id, n := range t.Counts() {
			if m, ok := t.Member(id); ok && t.Apart(m) {
				left += n
			}
		}
		return fmt.Sprintf("members of build %s have %s left", build, counted(left, "slot")), left == 0, nil
	})
}

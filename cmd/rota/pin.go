package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation/path"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
)

// Reasons of the events about pins.
const (
	eventPinned   = "Pinned"
	eventUnpinned = "Unpinned"
)

func newPin() *cobra.Command {
	a := &actor{}
	var to string
	var expect bool
	cmd := &cobra.Command{
		Use:   "pin OBJECT [NAME] --to LABELS",
		Short: "Keep an object, or a namespace, on members with certain labels",
		Long: `Keeps an object's slot, including the other objects in it, on a member with certain labels
(--rota-member-labels). OBJECT is NAMESPACE/NAME, the name of a cluster-scoped object or, if the rota shards by
namespace, a namespace. While there is no such member, any member may own the slot.`,
		Example: `  rota pin team-a/huge website -n operators --to pool=large --reason "needs 4 GiB"
  rota pin team-a -n operators --to pool=large,zone=a`,
		Args: oneObject,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := objectName(args[0]); err != nil {
				return usagef("pin: %w", err)
			}
			wanted, err := pinLabels(to)
			if err != nil {
				return usagef("pin: --to %q: %w", to, err)
			}
			if err := a.open(cmd, args[1:]); err != nil {
				return err
			}
			defer a.close()
			return a.pin(args[0], wanted, expect)
		},
	}
	a.bind(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	a.bindReason(cmd)
	cmd.Flags().StringVar(&to, "to", "", "labels that the member must have, such as pool=large,zone=a")
	cmd.Flags().BoolVar(&expect, "expect", false, "no member has these labels yet")
	return cmd
}

// oneObject accepts an object and, optionally, the name of its rota.
func oneObject(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 1, 2:
		return nil
	case 0:
		return errors.New("give an object as NAMESPACE/NAME, or a namespace if the rota shards by namespace")
	}
	return fmt.Errorf("give one object, and the name of one rota; got %d arguments", len(args))
}

// objectName checks an object's name, NAMESPACE/NAME or NAME, as far as possible without the object's kind.
func objectName(text string) error {
	namespace, name, namespaced := strings.Cut(text, "/")
	if !namespaced {
		namespace, name = "default", text
	}
	reasons := append(validation.IsDNS1123Label(namespace), path.IsValidPathSegmentName(name)...)
	if name == "" || strings.ContainsAny(name, " \t\r\n,") {
		reasons = append(reasons, "it is not a valid name")
	}
	if len(reasons) > 0 {
		return fmt.Errorf("%q is not an object's NAMESPACE/NAME: %s", text, strings.Join(reasons, "; "))
	}
	return nil
}

// pinLabels parses the labels of a pin.
func pinLabels(text string) (string, error) {
	set, err := apilabels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return "", err
	}
	if len(set) == 0 {
		return "", errors.New("give labels, such as pool=large")
	}
	if _, err := apilabels.ValidatedSelectorFromSet(set); err != nil {
		return "", err
	}
	joined := table.JoinLabels(set)
	return joined, table.ValidLabels(joined)
}

func (a *actor) pin(object, wanted string, expect bool) error {
	r, err := a.reader.Read(a.cmd.Context())
	if err != nil {
		return a.failed(viewError(err))
	}
	have := orders.Labels{}
	for _, m := range r.Members {
		have[m.ID] = ""
		if report := r.Reports[m.ID]; report != nil {
			have[m.ID] = report.Setup[coverage.SettingLabels]
		}
	}
	t, changed, err := a.give(func(t *table.Table, by orders.By) error {
		return orders.Pin(t, object, wanted, have, expect, by)
	}, eventPinned, func() string { return object + " belongs on members with the labels " + wanted })
	if err != nil {
		return err
	}
	if !changed {
		a.result("rota %s: %s is pinned to %s already", a.rota, object, wanted)
		return nil
	}
	a.result("rota %s: %s, with all of slot %d, is pinned to members with the labels %s", a.rota, object,
		t.SlotOf(object), wanted)
	if t.Paused() {
		a.progress("rota: moves are paused, so the slot stays where it is until `rota resume`")
	}
	return nil
}

func newUnpin() *cobra.Command {
	a := &actor{}
	cmd := &cobra.Command{
		Use:     "unpin OBJECT [NAME]",
		Short:   "Remove the pin of an object",
		Example: `  rota unpin team-a/huge website -n operators`,
		Args:    oneObject,
		RunE: a.onFirst(func(name string) error {
			found := false
			_, _, err := a.give(func(t *table.Table, _ orders.By) error {
				_, has := t.Pinned(name)
				if found && !has {
					return orders.ErrNoChange // an earlier write took effect after its error
				}
				found = has
				return orders.Unpin(t, name)
			}, eventUnpinned,
				fixed(name+" may be on any member"))
			if err != nil {
				return err
			}
			a.result("rota %s: %s is no longer pinned", a.rota, name)
			return nil
		}),
	}
	a.bind(cmd)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

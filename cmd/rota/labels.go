package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

func newLabels() *cobra.Command {
	return &cobra.Command{
		Use:   "labels KIND.GROUP...",
		Short: "Print the names of the labels by which objects of kinds are delivered",
		Example: `  rota labels Website.web.example.com Deployment.apps ConfigMap
  kubectl get websites -A -L rota.dev/hash-website-b2c498`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return labels(cmd.OutOrStdout(), args) },
	}
}

// labels prints the labels that each kind may have: by its own key if it is primary, by its owners' keys if it is
// owned.
func labels(w io.Writer, kinds []string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "KIND\tKEY\tPRIMARY\tOWNED")
	parsed, err := parseKinds(kinds)
	if err != nil {
		return err
	}
	for _, kind := range parsed {
		for _, key := range []slot.Key{slot.KeyName, slot.KeyNamespace, slot.KeyUID} {
			primary := sharding.HashLabel(key, kind)
			if primary == "" {
				primary = "-"
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", kind, key, primary, sharding.OwnerLabel(key, kind))
		}
	}
	return t.Flush()
}

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/apiservers/split"
)

func newSplit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "split",
		Short: "Divide a controller manager with many controllers into several",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newSplitKCM())
	return cmd
}

type splitOptions struct {
	manifest, flags string
	version, list   string
	groups          string
	printGroups     bool
	out             outFolder
	check           []string
	checkCluster    bool
	kubeconfig      string
}

func newSplitKCM() *cobra.Command {
	var o splitOptions
	cmd := &cobra.Command{
		Use:   "kcm (--manifest FILE | --flags LINE | -- kube-controller-manager ...) [--out DIR | --check PATH ...]",
		Short: "Divide kube-controller-manager into groups of controllers, each with its own leader",
		Long: `Plans one kube-controller-manager per group of controllers (by default workloads, garbage and cluster), and
prints the plan. With --out it writes the files for the migration and for going back: a manifest or script per group,
permissions for the new Leases, and Leases to hold meanwhile (docs/controller-runtime.md).

With --check it compares the running processes with the plan, and exits with 1 if a controller runs nowhere or twice.
The controllers of Kubernetes v1.36 are built in. For other versions pass --controllers-list.`,
		Example: `  rota split kcm --manifest /etc/kubernetes/manifests/kube-controller-manager.yaml
  rota split kcm --manifest kube-controller-manager.yaml --out split
  rota split kcm --manifest kube-controller-manager.yaml --check /etc/kubernetes/manifests
  rota split kcm --manifest kube-controller-manager.yaml --check-cluster
  rota split kcm --kubernetes-version v1.36.3 -- kube-controller-manager --kubeconfig=/etc/kcm.conf`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usagef("split kcm: %q: put a command line after --", args[0])
			}
			return splitKCM(cmd, args, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.manifest, "manifest", "", "manifest of the current kube-controller-manager's static Pod")
	f.StringVar(&o.flags, "flags", "", "its command line, as one argument")
	f.StringVar(&o.version, "kubernetes-version", "",
		"its version (default from the manifest's image)")
	f.StringVar(&o.list, "controllers-list", "",
		"file with the output of \"kube-controller-manager --help\", for its list of controllers")
	f.StringVar(&o.groups, "groups", "", "YAML file with the groups (default see --print-groups)")
	f.BoolVar(&o.printGroups, "print-groups", false, "print the default groups")
	o.out.flags(f, "")
	f.StringArrayVar(&o.check, "check", nil,
		"folder of manifests, file, or - for standard input, with the running processes (repeat for each node)")
	f.BoolVar(&o.checkCluster, "check-cluster", false, "compare the Pods and Leases of a cluster with the plan")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of the kubeconfig for --check-cluster (default as kubectl)")
	return cmd
}

func splitKCM(cmd *cobra.Command, args []string, o splitOptions) error {
	if o.printGroups {
		text, _ := split.DefaultGroups()
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	checks := len(o.check) > 0 || o.checkCluster
	if checks && o.out.dir != "" {
		return usagef("split kcm: give --out or --check, not both")
	}
	if err := o.out.check(); err != nil {
		return usagef("split kcm: %w", err)
	}
	if o.kubeconfig != "" && !o.checkCluster {
		return usagef("split kcm: --kubeconfig needs --check-cluster")
	}
	p, err := planSplit(args, o)
	if err != nil {
		return fmt.Errorf("split kcm: %w", err)
	}
	w := cmd.OutOrStdout()
	if checks {
		return checkSplit(cmd.Context(), w, cmd.InOrStdin(), p, o)
	}
	if o.out.dir != "" {
		files, err := p.Files()
		if err != nil {
			return fmt.Errorf("split kcm: nothing was written: %w", err)
		}
		if err := writeFiles(w, o.out, files, split.Written); err != nil {
			return fmt.Errorf("split kcm: %w", err)
		}
		_, _ = fmt.Fprintln(w)
	}
	return printSplit(w, p)
}

// planSplit reads the files and flags, and plans.
func planSplit(args []string, o splitOptions) (*split.Plan, error) {
	in, version, err := undivided(args, o)
	if err != nil {
		return nil, err
	}
	catalog, err := splitCatalog(o.list, version)
	if err != nil {
		return nil, err
	}
	var groups []split.Group
	if o.groups != "" {
		text, err := os.ReadFile(o.groups)
		if err != nil {
			return nil, err
		}
		if groups, err = split.ParseGroups(o.groups, text); err != nil {
			return nil, err
		}
	}
	return split.New(in, groups, catalog)
}

// undivided reads the kube-controller-manager to divide, and finds its version.
func undivided(args []string, o splitOptions) (in split.Input, version string, err error) {
	given := 0
	for _, ok := range []bool{o.manifest != "", o.flags != "", len(args) > 0} {
		if ok {
			given++
		}
	}
	if given != 1 {
		return in, "", usagef("give the current kube-controller-manager in one of three ways: --manifest FILE, " +
			"--flags LINE, or -- and its command line")
	}
	if o.manifest == "" {
		if o.flags != "" {
			if args, err = split.Words(o.flags); err != nil {
				return in, "", err
			}
		}
		in.Command, err = split.ParseCommand(args)
		return in, o.version, err
	}
	text, err := os.ReadFile(o.manifest)
	if err != nil {
		return in, "", err
	}
	if in.Manifest, err = split.ParseManifest(o.manifest, text); err != nil {
		return in, "", err
	}
	version = in.Manifest.Version()
	if version != "" && o.version != "" && version != o.version {
		return in, "", usagef("--kubernetes-version %s, but the image in %s is %s", o.version, o.manifest, version)
	}
	if version == "" {
		version = o.version
	}
	return in, version, nil
}

func splitCatalog(list, version string) (split.Catalog, error) {
	if list == "" {
		if version == "" {
			return split.Catalog{}, usagef("the version is unknown: give --kubernetes-version, or " +
				"--controllers-list with the output of `kube-controller-manager --help`")
		}
		return split.CatalogOf(version)
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return split.Catalog{}, err
	}
	catalog, err := split.ParseHelp(list, string(text))
	if version != "" {
		catalog.Version = version
	}
	return catalog, err
}

// printSplit prints a plan.
func printSplit(w io.Writer, p *split.Plan) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "GROUP\tLEASE\tPORT\tCONTROLLERS")
	for _, g := range p.Groups {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%d\n", g.Name, g.Lease, g.SecurePort, len(g.On))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, g := range p.Groups {
		_, _ = fmt.Fprintf(w, "\n%s runs:\n", g.Name)
		for _, name := range g.On {
			_, _ = fmt.Fprintf(w, "  %s\n", name)
		}
	}
	if len(p.Off) > 0 {
		_, _ = fmt.Fprintf(w, "\noff, as before: %s\n", strings.Join(p.Off, ", "))
	}
	for _, note := range p.Notes {
		_, _ = fmt.Fprintf(w, "\nnote: %s\n", note)
	}
	return nil
}

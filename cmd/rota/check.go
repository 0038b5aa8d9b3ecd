package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/fence"
	"github.com/rota-dev/rota/internal/cli/check"
	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// checkTimeout bounds the requests that find the rota. Package check bounds its own requests.
const checkTimeout = time.Minute

type checkOptions struct {
	target   rotaFlags
	out      output
	account  string
	kinds    []string
	owned    []string
	delivery string
	election string
	check.Options
}

func newCheck() *cobra.Command {
	o := &checkOptions{}
	cmd := &cobra.Command{
		Use:   "check [NAME]",
		Short: "Check a cluster and a rota, and print what is wrong and what to do",
		Long: `Checks the cluster, the operator's permissions, and the rota: table, members, slots, duties, coverage, fence.
It changes nothing, and tries a fence with a dry run.

Lines begin with √ (good), ‼ (may go wrong, or unknown) or × (does not work). They include what to do and a link into
docs/troubleshooting.md. The exit status is 1 if there is a ×.

It checks the permissions of the members' ServiceAccount, or of --service-account or --as. With --as it reads everything
as that user. With --pre it checks the cluster before anything is installed: name the kinds.`,
		Example: `  rota check website -n operators
  rota check --pre -n operators --service-account operators/website-operator \
    --kind Website.web.example.com --owned Deployment.apps --delivery slot-label`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	o.target.bind(cmd)
	o.out.bind(cmd, "table", "json", "yaml")
	f := cmd.Flags()
	f.BoolVar(&o.Pre, "pre", false, "check the cluster only, before anything is installed")
	f.StringVar(&o.account, "service-account", "",
		"NAMESPACE/NAME of the operator's ServiceAccount (default from its Pods)")
	f.StringArrayVar(&o.kinds, "kind", nil,
		"sharded KIND.GROUP (repeatable; default from the members' reports)")
	f.StringArrayVar(&o.owned, "owned", nil, "KIND.GROUP of their children, as for Owns (repeatable)")
	f.StringVar(&o.delivery, "delivery", "", "filter, slot-label or shard-selector (default from the members' reports)")
	f.BoolVar(&o.Label, "label", false, "members set the option Label")
	f.StringSliceVar(&o.Namespaces, "in-namespaces", nil,
		"namespaces that the members' informers watch (default all)")
	f.StringVar(&o.election, "leader-election-lease", "",
		"NAMESPACE/NAME of the Lease of Options.LeaderElectionID (default from the members' reports)")
	f.DurationVar(&o.Wait, "wait", 20*time.Second, "how long to wait for slots that move or are closed "+
		"(default longer for long leases)")
	modes := []string{"filter", "slot-label", "shard-selector"}
	_ = cmd.RegisterFlagCompletionFunc("delivery", cobra.FixedCompletions(modes, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *checkOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.parse(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), checkTimeout)
	defer cancel()
	o.Longer = !cmd.Flags().Changed("wait")
	o.Self = *o.target.config.Impersonate != ""
	cfg, namespace, err := o.target.load()
	if err != nil {
		return err
	}
	o.Rota.Namespace = namespace
	if len(args) > 0 || !o.Pre {
		if o.Rota.Name, err = theRota(ctx, cfg, namespace, args); err != nil {
			return err
		}
	}
	result, err := check.Run(cmd.Context(), cfg, o.Options)
	if err != nil {
		return missingRota(cmd.Context(), cfg, o.Rota, err)
	}
	w := cmd.OutOrStdout()
	done, err := o.out.data(w, result)
	if !done {
		err = printCheck(w, newPaint(cmd, w), result)
	}
	if err == nil && result.Failed > 0 {
		err = fmt.Errorf("check: %d of %d checks failed", result.Failed, countLines(result))
	}
	return err
}

func (o *checkOptions) parse() (err error) {
	if o.Wait < 0 {
		return usagef("check: --wait %v: must not be negative", o.Wait)
	}
	if o.account != "" {
		if *o.target.config.Impersonate != "" {
			return usagef("check: give --service-account or --as, not both")
		}
		if o.Account, err = fence.ParseServiceAccount(o.account); err != nil {
			return withCode(exitUsage, fmt.Errorf("check: %w", err))
		}
	}
	if o.election != "" {
		namespace, name, _ := strings.Cut(o.election, "/")
		if namespace == "" || name == "" || strings.Contains(name, "/") {
			return usagef("check: --leader-election-lease %q: must be NAMESPACE/NAME", o.election)
		}
		o.Elections = []types.NamespacedName{{Namespace: namespace, Name: name}}
	}
	if o.delivery != "" {
		if o.Delivery, err = sharding.ParseMode(o.delivery); err != nil {
			return withCode(exitUsage, fmt.Errorf("check: %w", err))
		}
	}
	if o.Kinds, err = parseKinds(o.kinds); err == nil {
		o.Owned, err = parseKinds(o.owned)
	}
	return err
}

// parseKinds parses KIND.GROUP.
func parseKinds(texts []string) (out []schema.GroupKind, err error) {
	for _, text := range texts {
		kind := schema.ParseGroupKind(text)
		if first, _ := utf8.DecodeRuneInString(kind.Kind); !unicode.IsUpper(first) {
			return nil, usagef("%q is no kind: use Deployment.apps, not deployments.apps, and ConfigMap if there is no group",
				text)
		}
		out = append(out, kind)
	}
	return out, nil
}

func countLines(r *check.Result) int {
	n := 0
	for _, g := range r.Groups {
		n += len(g.Lines)
	}
	return n
}

// printCheck prints a result as text.
func printCheck(to io.Writer, p paint, r *check.Result) error {
	var b strings.Builder
	for _, g := range r.Groups {
		fmt.Fprintln(&b, g.Name)
		for _, l := range g.Lines {
			printLine(&b, p, l)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "%d √, %d ‼, %d ×\n", countLines(r)-r.Warnings-r.Failed, r.Warnings, r.Failed)
	return p.print(to, b.String())
}

func printLine(b *strings.Builder, p paint, l check.Line) {
	sign := p.good("√")
	switch l.Level {
	case check.Failed:
		sign = p.bad("×")
	case check.Warning:
		sign = p.warn("‼")
	case check.OK:
	}
	about := strings.TrimSpace(prefixed("member ", l.Member) + prefixed(" ", slotsOf(l.Slots)))
	if about != "" {
		about += ": "
	}
	fmt.Fprintf(b, "  %s %s%s\n", sign, about, l.Text)
	if l.Level == check.OK {
		return
	}
	for line := range strings.Lines(l.Cure) {
		fmt.Fprintf(b, "      %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(b, "      see %s\n", l.Link)
}

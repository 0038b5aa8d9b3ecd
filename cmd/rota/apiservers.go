package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/apiservers/deployment"
)

// errNoDeployment is returned if a static Pod cannot become a Deployment.
var errNoDeployment = errors.New("this static Pod cannot become a Deployment as it is")

type apiserversOptions struct {
	deployment.Options
	manifest        string
	set             []string
	selector, taint []string
	cpu             string
	secrets         string
	out             outFolder
}

func newAPIServers() *cobra.Command {
	var o apiserversOptions
	cmd := &cobra.Command{
		Use:   "apiservers --manifest FILE [--out DIR]",
		Short: "Write manifests of API servers that scale, based on a static kube-apiserver",
		Long: `Reads the manifest of a static kube-apiserver and the files that it refers to, and prints what becomes of them.
With --out it writes a Deployment, Secrets, a ConfigMap, a Service, a PodDisruptionBudget and a HorizontalPodAutoscaler
(docs/apiserver.md). Keys go to DIR/secrets, which only you can read. If something only works on its host, nothing is
written, and the exit status is 1.`,
		Example: `  rota apiservers --manifest /etc/kubernetes/manifests/kube-apiserver.yaml \
    --set etcd-servers=https://10.0.0.11:2379,https://10.0.0.12:2379 --set audit-log-path=- --out apiservers
  rota apiservers --manifest kube-apiserver.yaml --pki ./pki --secrets reference --out apiservers`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAPIServers(cmd.OutOrStdout(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.manifest, "manifest", "", "manifest of the static Pod of kube-apiserver")
	f.StringVar(&o.Root, "root", "/", "`folder` to read instead of the host's /")
	f.StringVar(&o.PKI, "pki", "", "`folder` to read instead of the host's /etc/kubernetes/pki")
	f.StringVarP(&o.Namespace, "namespace", "n", "kube-system", "namespace of the Deployment")
	f.StringVar(&o.Name, "name", "kube-apiserver", "name of all objects")
	f.StringArrayVar(&o.set, "set", nil,
		"`FLAG=VALUE` of kube-apiserver that overrides the manifest (repeatable)")
	f.StringArrayVar(&o.Unset, "unset", nil, "`FLAG` of kube-apiserver to omit (repeatable)")
	f.StringArrayVar(&o.Names, "server-name", nil,
		"additional `name` or address that the serving certificate must contain (repeatable)")
	f.Int32Var(&o.Min, "min", 2, "minimum number of API servers, at least 2")
	f.Int32Var(&o.Max, "max", 6, "maximum number of API servers")
	f.StringVar(&o.cpu, "cpu", "1", "average `CPU` use above which an API server is added, such as 1500m")
	f.BoolVar(&o.JoinKubernetes, "join-kubernetes", false,
		"also make them endpoints of the Service \"kubernetes\"")
	f.StringArrayVar(&o.selector, "node-selector", nil, "`LABEL=VALUE` of the nodes to run on (repeatable)")
	f.StringArrayVar(&o.taint, "tolerate", nil,
		"`KEY[=VALUE][:EFFECT]` of a taint to tolerate (repeatable)")
	f.StringVar(&o.secrets, "secrets", "write", "write, or reference if you create the Secrets yourself")
	o.out.flags(f, "")
	return cmd
}

func runAPIServers(w io.Writer, o apiserversOptions) error {
	if err := o.read(); err != nil {
		return fmt.Errorf("apiservers: %w", err)
	}
	text, err := os.ReadFile(o.manifest)
	if err != nil {
		return fmt.Errorf("apiservers: %w", err)
	}
	p, err := deployment.New(text, o.Options)
	var refused *deployment.RefusedError
	if errors.As(err, &refused) {
		for _, f := range refused.Findings {
			_, _ = fmt.Fprintf(w, "✗ %s\n  %s\n  do: %s\n", f.Object, f.Wrong, f.Cure)
		}
		return fmt.Errorf("apiservers: %w; nothing was written", errNoDeployment)
	}
	if err != nil {
		return fmt.Errorf("apiservers: %w", err)
	}
	if o.out.dir != "" {
		files, err := p.Files()
		if err != nil {
			return fmt.Errorf("apiservers: nothing was written: %w", err)
		}
		if err := writeFiles(w, o.out, files, deployment.Written); err != nil {
			return fmt.Errorf("apiservers: %w", err)
		}
		_, _ = fmt.Fprintln(w)
	}
	return printAPIServers(w, p)
}

// read checks and parses the flags.
func (o *apiserversOptions) read() (err error) {
	switch {
	case o.manifest == "":
		return usagef("give the manifest of the static kube-apiserver: --manifest FILE")
	case o.Min < 2:
		return usagef("--min %d: must be at least 2, so that one may stop", o.Min)
	case o.Max < o.Min:
		return usagef("--max %d: must be at least --min %d", o.Max, o.Min)
	case o.secrets != "write" && o.secrets != "reference":
		return usagef("--secrets %s: must be write or reference", o.secrets)
	}
	if err := o.out.check(); err != nil {
		return usagef("%w", err)
	}
	for flag, name := range map[string]string{"name": o.Name, "namespace": o.Namespace} {
		if wrong := validation.IsDNS1035Label(name); len(wrong) > 0 {
			return usagef("--%s %q: %s", flag, name, wrong[0])
		}
	}
	o.ReferenceSecrets = o.secrets == "reference"
	o.Options.From, o.Options.Now = o.manifest, time.Now()
	if o.CPU, err = resource.ParseQuantity(o.cpu); err != nil || o.CPU.Sign() <= 0 {
		return usagef("--cpu %s: must be an amount of CPU above 0, such as 1 or 1500m", o.cpu)
	}
	if o.Set, err = setsOf(o.set); err != nil {
		return err
	}
	for name := range o.Set {
		if err := notManaged("set", name); err != nil {
			return err
		}
	}
	for _, name := range o.Unset {
		if err := notManaged("unset", name); err != nil {
			return err
		}
	}
	if o.NodeSelector, err = pairsOf("node-selector", o.selector); err != nil {
		return err
	}
	for _, t := range o.taint {
		toleration, err := tolerationOf(t)
		if err != nil {
			return err
		}
		o.Tolerations = append(o.Tolerations, toleration)
	}
	return nil
}

// setsOf parses --set. A flag of kube-apiserver that may be repeated may have several values.
func setsOf(list []string) (map[string][]string, error) {
	sets := map[string][]string{}
	for _, item := range list {
		name, value, err := pairOf("set", item)
		if err != nil {
			return nil, err
		}
		if sets[name] = append(sets[name], value); len(sets[name]) > 1 && !deployment.Repeatable(name) {
			return nil, usagef("--set %s: %s is given twice; if it takes a list, give it once, with commas", item, name)
		}
	}
	return sets, nil
}

// pairOf parses NAME=VALUE.
func pairOf(flag, item string) (name, value string, err error) {
	name, value, ok := strings.Cut(item, "=")
	name = strings.TrimLeft(name, "-")
	if !ok || name == "" {
		return "", "", usagef("--%s %s: must be NAME=VALUE", flag, item)
	}
	return name, value, nil
}

// pairsOf parses NAME=VALUE of a flag that may be repeated.
func pairsOf(flag string, list []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, item := range list {
		name, value, err := pairOf(flag, item)
		if err != nil {
			return nil, err
		}
		if _, twice := pairs[name]; twice {
			return nil, usagef("--%s %s: %s is given twice", flag, item, name)
		}
		pairs[name] = value
	}
	return pairs, nil
}

func notManaged(flag, name string) error {
	if slices.Contains(deployment.Managed(), name) {
		return usagef("--%s %s: the Deployment determines this flag of kube-apiserver, so it cannot be changed", flag, name)
	}
	return nil
}

// tolerationOf parses KEY[=VALUE][:EFFECT], the syntax of kubectl taint.
func tolerationOf(text string) (corev1.Toleration, error) {
	t := corev1.Toleration{Operator: corev1.TolerationOpExists}
	key, effect, _ := strings.Cut(text, ":")
	effects := []corev1.TaintEffect{
		"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
	}
	if t.Effect = corev1.TaintEffect(effect); key == "" || !slices.Contains(effects, t.Effect) {
		return t, usagef("--tolerate %s: must be KEY[=VALUE][:EFFECT], with EFFECT NoSchedule, PreferNoSchedule or NoExecute",
			text)
	}
	if k, value, ok := strings.Cut(key, "="); ok {
		key, t.Value, t.Operator = k, value, corev1.TolerationOpEqual
	}
	t.Key = key
	return t, nil
}

// printAPIServers prints a plan without the files' contents.
func printAPIServers(w io.Writer, p *deployment.Plan) error {
	_, _ = fmt.Fprintf(w, "%s\n\n", p.Summary())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "KIND\tNAME\tTYPE\tKEY\tFILE")
	for _, s := range p.Stores() {
		for _, key := range s.SortedKeys() {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", s.Kind, s.Name, s.Type, key, s.Keys[key])
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", strings.Join(p.Command(), " \\\n  "))
	for _, note := range p.Notes {
		_, _ = fmt.Fprintf(w, "\nnote: %s\n", note)
	}
	return nil
}

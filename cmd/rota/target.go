package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/nearest"
)

// completeTimeout bounds the requests behind one press of the Tab key.
const completeTimeout = 3 * time.Second

// rotaFlags are kubectl's flags for the cluster and the namespace.
type rotaFlags struct {
	config *genericclioptions.ConfigFlags
}

// bind adds the flags to a command whose argument is a rota's name.
func (f *rotaFlags) bind(cmd *cobra.Command) {
	f.config = genericclioptions.NewConfigFlags(true)
	f.config.CacheDir = nil // nothing is cached on disk
	cluster := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.config.AddFlags(cluster)
	cluster.VisitAll(func(flag *pflag.Flag) { // hidden, because there are many
		flag.Hidden = !slices.Contains([]string{"namespace", "kubeconfig", "context", "as"}, flag.Name)
	})
	cmd.Flags().AddFlagSet(cluster)
	cmd.Flags().Lookup("namespace").Usage = "namespace of the rota (default from the kubeconfig's context)"
	cmd.Flags().Lookup("kubeconfig").Usage = "path of the kubeconfig (default as kubectl; " +
		"kubectl's other flags for the cluster work as well)"
	_ = cmd.RegisterFlagCompletionFunc("namespace", f.completeNamespaces)
	cmd.ValidArgsFunction = f.completeRotas
}

// given returns the namespace from the flag, or "".
func (f *rotaFlags) given() string { return *f.config.Namespace }

// load returns the cluster's configuration and the namespace. Its error has the code exitUnreachable.
func (f *rotaFlags) load() (cfg *rest.Config, namespace string, err error) {
	loader := f.config.ToRawKubeConfigLoader()
	if namespace, _, err = loader.Namespace(); err != nil {
		return nil, "", withCode(exitUnreachable, fmt.Errorf("kubeconfig: %w", err))
	}
	// By default kubectl falls back to localhost:8080, which is never right.
	if raw, err := loader.RawConfig(); err == nil && clientcmdapi.IsConfigEmpty(&raw) && *f.config.APIServer == "" {
		if _, err := rest.InClusterConfig(); err != nil {
			missing, cure := "", "set KUBECONFIG"
			if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); files != "" {
				missing, cure = clientcmd.RecommendedConfigPathEnvVar+"="+files+" does not exist or is empty: ", "set it"
			}
			return nil, "", withCode(exitUnreachable, errors.New("no cluster is configured: "+missing+cure+", or give "+
				"--kubeconfig, or --server"))
		}
	}
	if cfg, err = f.config.ToRESTConfig(); err != nil {
		return nil, "", withCode(exitUnreachable, fmt.Errorf("kubeconfig: %w", err))
	}
	cfg.QPS, cfg.Burst = 50, 300 // as kubectl
	return cfg, namespace, nil
}

// loadRota is load, and also returns the rota's name.
func (f *rotaFlags) loadRota(ctx context.Context, args []string) (*rest.Config, types.NamespacedName, error) {
	cfg, namespace, err := f.load()
	if err != nil {
		return nil, types.NamespacedName{}, err
	}
	name, err := theRota(ctx, cfg, namespace, args)
	return cfg, types.NamespacedName{Namespace: namespace, Name: name}, err
}

// oneName accepts at most one argument, a rota's name. theRota finds the rota if it is missing.
func oneName(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("give the name of one rota; got %d names", len(args))
	}
	return nil
}

// theRota returns the name in args, or the only rota in the namespace.
func theRota(ctx context.Context, cfg *rest.Config, namespace string, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], validRota(args[0])
	}
	found, err := listRotas(ctx, cfg, namespace)
	if err != nil {
		return "", fmt.Errorf("find the rota in namespace %s: %w; or give the rota's name", namespace, err)
	}
	switch len(found) {
	case 0:
		return "", missingf("there is no rota in namespace %s: %s%s", namespace, whyNone(ctx, cfg, namespace),
			elsewhere(ctx, cfg, types.NamespacedName{Namespace: namespace}))
	case 1:
		return found[0].Name, nil
	}
	var list []string
	for _, r := range found {
		list = append(list, r.Name)
	}
	return "", usagef("there are %d rotas in namespace %s, choose one: %s", len(list), namespace, strings.Join(list, ", "))
}

// whyNone explains why a namespace has no rota, and lists rotas elsewhere.
func whyNone(ctx context.Context, cfg *rest.Config, namespace string) string {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "give its namespace with -n"
	}
	return view.WhyNone(ctx, client, namespace)
}

// maxElsewhere limits how many rotas a message lists.
const maxElsewhere = 10

// elsewhere lists existing rotas for a message about one that does not exist: the rotas in its namespace, or in all
// namespaces if it has none. It is empty if the user may not list them.
func elsewhere(ctx context.Context, cfg *rest.Config, rota types.NamespacedName) string {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	found, err := listRotas(ctx, cfg, rota.Namespace)
	if err == nil && len(found) == 0 {
		found, err = listRotas(ctx, cfg, metav1.NamespaceAll)
	}
	if err != nil || len(found) == 0 {
		return ""
	}
	return namesElsewhere(found, rota)
}

func namesElsewhere(found []types.NamespacedName, rota types.NamespacedName) string {
	var list []string
	for _, r := range found {
		list = append(list, r.String())
	}
	text := "."
	near := nearest.Of(rota.String(), list)
	if near != "" && nearest.Distance(near[strings.Index(near, "/")+1:], rota.Name) <= 2 {
		text = ". Did you mean " + near + "?"
	}
	more := ""
	if n := len(list) - maxElsewhere; n > 0 {
		list, more = list[:maxElsewhere], fmt.Sprintf(" and %d more", n)
	}
	return text + " There are rotas " + strings.Join(list, ", ") + more
}

// validRota returns a usage error if no rota can have this name.
func validRota(name string) error {
	if bad := validation.IsDNS1123Label(name); len(bad) > 0 {
		return usagef("name of the rota %q: %s", name, strings.Join(bad, "; "))
	}
	return nil
}

// listRotas returns the rotas in a namespace, or in all namespaces if it is empty, sorted by name.
func listRotas(ctx context.Context, cfg *rest.Config, namespace string) ([]types.NamespacedName, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelRota})
	if err != nil {
		return nil, err
	}
	var out []types.NamespacedName
	for _, c := range list.Items {
		if c.Labels[names.LabelRota] == c.Name {
			out = append(out, types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
		}
	}
	if len(out) == 0 { // if the table was deleted, members still have Leases
		leases, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelRota})
		for i := 0; err == nil && i < len(leases.Items); i++ {
			l := &leases.Items[i]
			name := types.NamespacedName{Namespace: l.Namespace, Name: l.Labels[names.LabelRota]}
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.SortFunc(out, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// completeRotas completes the argument NAME.
func (f *rotaFlags) completeRotas(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.complete(cmd, func(ctx context.Context, cfg *rest.Config, namespace string) (out []string, err error) {
		found, err := listRotas(ctx, cfg, namespace)
		for _, r := range found {
			out = append(out, r.Name)
		}
		return out, err
	})
}

func (f *rotaFlags) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.complete(cmd, func(ctx context.Context, cfg *rest.Config, _ string) (out []string, err error) {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		list, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, n := range list.Items {
			out = append(out, n.Name)
		}
		return out, nil
	})
}

// complete completes words from the cluster. An error completes nothing.
func (f *rotaFlags) complete(cmd *cobra.Command, ask func(context.Context, *rest.Config, string) ([]string, error),
) ([]string, cobra.ShellCompDirective) {
	cfg, namespace, err := f.load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	words, err := ask(ctx, cfg, namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// loadKubeconfig is load for commands that only have --kubeconfig.
func loadKubeconfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, withCode(exitUnreachable, fmt.Errorf("kubeconfig: %w", err))
	}
	return cfg, nil
}

// readRota reads a rota once. Its errors have exit codes.
func readRota(ctx context.Context, cfg *rest.Config, rota types.NamespacedName) (r *view.Rota, err error) {
	err = within(ctx, func(ctx context.Context) error {
		r, err = view.Read(ctx, cfg, rota.Namespace, rota.Name)
		return err
	})
	if err != nil {
		return nil, missingRota(ctx, cfg, rota, err)
	}
	return r, nil
}

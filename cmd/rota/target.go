package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// rotaFlags say in which cluster and namespace a rota is.
type rotaFlags struct{ kubeconfig, namespace string }

func (f *rotaFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "path of the kubeconfig (default as kubectl)")
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "",
		"namespace of the rota (default that of the kubeconfig's context)")
}

func (f *rotaFlags) load() (cfg *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	if cfg, err = loaded.ClientConfig(); err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	if f.namespace != "" {
		return cfg, f.namespace, nil
	}
	if namespace, _, err = loaded.Namespace(); err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	return cfg, namespace, nil
}

// oneName accepts one argument, the name of a rota.
func oneName(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: give the name of one rota, as in `rota %s website -n operators`; got %d names",
				command, command, len(args))
		}
		return nil
	}
}

package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/test/controlplane/supervisor"
)

// UserConfig makes a user with a client certificate, and returns a configuration to act as that user on the first API
// server. RBAC says what the user may do; a member of the group system:masters may do everything.
func (c *ControlPlane) UserConfig(user string, groups ...string) (*rest.Config, error) {
	pki, err := supervisor.OpenPKI(c.info.Dir)
	if err != nil {
		return nil, fmt.Errorf("make user %s: %w", user, err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.CertData, config.KeyData, err = pki.Client(user, groups...)
	return config, err
}

// WriteUserKubeconfig makes a user, as UserConfig does, and writes a kubeconfig for it to path.
func (c *ControlPlane) WriteUserKubeconfig(path, user string, groups ...string) error {
	pki, err := supervisor.OpenPKI(c.info.Dir)
	if err != nil {
		return fmt.Errorf("make user %s: %w", user, err)
	}
	kubeconfig, err := pki.Kubeconfig(c.info.APIServers, user, groups...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig of user %s: %w", user, err)
	}
	return nil
}

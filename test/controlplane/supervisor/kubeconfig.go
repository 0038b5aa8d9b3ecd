package supervisor

import (
	"bytes"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const contextName = "rota-kube"

// Kubeconfig makes a self-contained kubeconfig for a new client certificate. The first API server is context rota-kube,
// the others rota-kube-1 and so on.
func (p *PKI) Kubeconfig(servers []string, user string, groups ...string) ([]byte, error) {
	cert, key, err := p.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	c := api.NewConfig()
	c.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	for i, server := range servers {
		name := contextName
		if i > 0 {
			name = fmt.Sprintf("%s-%d", contextName, i)
		}
		c.Clusters[name] = &api.Cluster{Server: server, CertificateAuthorityData: p.caPEM}
		c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user}
	}
	c.CurrentContext = contextName
	return clientcmd.Write(*c)
}

// mayOverwrite refuses a place for a kubeconfig where there is something that rota-kube did not write: a user's own
// ~/.kube/config is not for us to touch.
func mayOverwrite(path string) error {
	old, err := clientcmd.LoadFromFile(path)
	switch {
	case os.IsNotExist(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s exists and is no kubeconfig: name another file for --kubeconfig: %w", path, err)
	case old.CurrentContext != contextName:
		return fmt.Errorf("%s is a kubeconfig of something else: name another file for --kubeconfig", path)
	}
	return nil
}

// copyKubeconfig writes the kubeconfig to a second place and returns how to remove it, since it leads nowhere
// afterwards.
func copyKubeconfig(from, to string) (remove func(), err error) {
	b, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return func() {
		if now, err := os.ReadFile(to); err == nil && bytes.Equal(now, b) {
			_ = os.Remove(to)
		}
	}, nil
}

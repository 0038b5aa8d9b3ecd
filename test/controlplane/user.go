package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// UserConfig makes a user with a client certificate, and returns a configuration to act as that user on the first API
// server. RBAC says what the user may do; a member of the group system:masters may do everything.
func (c *ControlPlane) UserConfig(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.issue(user, groups)
	if err != nil {
		return nil, fmt.Errorf("make user %s: %w", user, err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.CertData, config.KeyData = cert, key
	return config, nil
}

// WriteUserKubeconfig makes a user, as UserConfig does, and writes a kubeconfig for it to path.
func (c *ControlPlane) WriteUserKubeconfig(path, user string, groups ...string) error {
	config, err := c.UserConfig(user, groups...)
	if err != nil {
		return err
	}
	const name = "rota-kube"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos[user] = &api.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: user}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("write the kubeconfig of user %s: %w", user, err)
	}
	return nil
}

// issue signs a client certificate with the control plane's authority.
func (c *ControlPlane) issue(user string, groups []string) (certPEM, keyPEM []byte, err error) {
	authority, err := tls.LoadX509KeyPair(c.info.CAFile, c.info.CAKeyFile)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: user, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	return certPEM, keyPEM, nil
}

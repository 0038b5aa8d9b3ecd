// Package hosttest creates the files of a control plane node for tests.
package hosttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/require"
)

// A Host is a folder with the files that the manifest of a static kube-apiserver refers to, as kubeadm and an
// administrator create them.
type Host struct {
	// Root is the folder that represents the host's /. Certificates are valid from an hour before Now, for a year.
	Root string
	Now  time.Time

	t testing.TB
}

// An Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// PKI is the folder of certificates and keys, with a trailing slash.
const PKI = "/etc/kubernetes/pki/"

// ServiceNames are the names that the serving certificate must contain by default.
var ServiceNames = []string{"kubernetes", "kubernetes.default.svc", "kube-apiserver.kube-system.svc", "localhost"}

// New creates a host. Its folder is removed after the test.
func New(t testing.TB) *Host {
	h := &Host{t: t, Root: t.TempDir(), Now: time.Now()}
	ca := h.Authority(PKI + "ca")
	h.Issue(ca, PKI+"apiserver", "kube-apiserver", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
		c.DNSNames = ServiceNames
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	})
	h.Issue(ca, PKI+"apiserver-kubelet-client", "kube-apiserver-kubelet-client", x509.ExtKeyUsageClientAuth, nil)
	h.Issue(ca, PKI+"admin", "admin", x509.ExtKeyUsageClientAuth, func(c *x509.Certificate) {
		c.Subject.Organization = []string{"system:masters"}
	})
	etcd := h.Authority(PKI + "etcd/ca")
	h.Issue(etcd, PKI+"apiserver-etcd-client", "kube-apiserver-etcd-client", x509.ExtKeyUsageClientAuth, nil)
	h.Issue(etcd, PKI+"etcd/server", "etcd", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	})
	h.Issue(h.Authority(PKI+"front-proxy-ca"), PKI+"front-proxy-client", "front-proxy-client", x509.ExtKeyUsageClientAuth,
		nil)
	h.AccountKey(PKI + "sa")
	h.Write(PKI+"encryption.yaml", `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: key1, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}
  - identity: {}
`)
	h.Write("/srv/policies/audit.yaml", `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  verbs: [delete]
`)
	return h
}

// Write writes a file, by its path on the host.
func (h *Host) Write(name, text string) {
	h.t.Helper()
	file := filepath.Join(h.Root, name)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(h.t, os.WriteFile(file, []byte(text), 0o600))
}

// Read reads a file, by its path on the host.
func (h *Host) Read(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Root, name))
	require.NoError(h.t, err)
	return string(text)
}

// Remove removes a file, by its path on the host.
func (h *Host) Remove(name string) {
	h.t.Helper()
	require.NoError(h.t, os.Remove(filepath.Join(h.Root, name)))
}

// WriteKey writes a private key.
func (h *Host) WriteKey(name string, key *ecdsa.PrivateKey) {
	h.t.Helper()
	h.Write(name, encodeKey(h.t, key))
}

func (h *Host) template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: h.Now.Add(-time.Hour), NotAfter: h.Now.AddDate(1, 0, 0),
	}
}

// Key generates a private key.
func (h *Host) Key() *ecdsa.PrivateKey {
	h.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(h.t, err)
	return key
}

// Authority writes the certificate of an authority, to path.crt.
func (h *Host) Authority(path string) *Authority {
	h.t.Helper()
	return h.authority(nil, path)
}

// Intermediate writes the certificate of an authority that another authority signed, to path.crt.
func (h *Host) Intermediate(of *Authority, path string) *Authority {
	h.t.Helper()
	return h.authority(of, path)
}

func (h *Host) authority(of *Authority, path string) *Authority {
	h.t.Helper()
	c := h.template(filepath.Base(path))
	c.IsCA, c.BasicConstraintsValid = true, true
	c.KeyUsage |= x509.KeyUsageCertSign
	a := &Authority{cert: c, key: h.Key()}
	if of == nil {
		of = a
	}
	a.cert = h.sign(c, of.cert, a.key.Public(), of.key)
	h.Write(path+".crt", encode("CERTIFICATE", a.cert.Raw))
	return a
}

// Issue writes a certificate and its key to path.crt and path.key. change may modify it first.
func (h *Host) Issue(a *Authority, path, name string, usage x509.ExtKeyUsage, change func(*x509.Certificate)) {
	h.t.Helper()
	c, key := h.template(name), h.Key()
	c.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	if change != nil {
		change(c)
	}
	h.Write(path+".crt", encode("CERTIFICATE", h.sign(c, a.cert, key.Public(), a.key).Raw))
	h.WriteKey(path+".key", key)
}

// AccountKey writes a key that signs tokens, and its public key, to path.key and path.pub.
func (h *Host) AccountKey(path string) {
	h.t.Helper()
	key := h.Key()
	h.WriteKey(path+".key", key)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(h.t, err)
	h.Write(path+".pub", encode("PUBLIC KEY", public))
}

func (h *Host) sign(c, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) *x509.Certificate {
	h.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, key)
	require.NoError(h.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(h.t, err)
	return cert
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func encodeKey(t testing.TB, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return encode("EC PRIVATE KEY", der)
}

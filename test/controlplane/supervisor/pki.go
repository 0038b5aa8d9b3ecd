package supervisor

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
	"net"
	"os"
	"path/filepath"
	"time"
)

// proxyUser is whom aggregated API servers believe what it says about users.
const proxyUser = "rota-kube-proxy-client"

// pkiDir is the folder of a PKI in that of its control plane.
const pkiDir = "pki"

// A PKI is the folder with the keys of one control plane. One authority signs the certificates of servers and clients.
// Whoever holds its key can make users.
type PKI struct {
	dir    string
	caCert *x509.Certificate
	caKey  *ecdsa.PrivateKey
	caPEM  []byte
}

func newPKI(dir string) (*PKI, error) {
	p := &PKI{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := p.makeAll(); err != nil {
		return nil, fmt.Errorf("make the control plane's keys: %w", err)
	}
	return p, nil
}

// OpenPKI reads the authority of a running control plane, whose folder is dir, to make users.
func OpenPKI(dir string) (*PKI, error) {
	p := &PKI{dir: filepath.Join(dir, pkiDir)}
	authority, err := tls.LoadX509KeyPair(p.crt("ca"), p.key("ca"))
	if err != nil {
		return nil, err
	}
	p.caCert, p.caKey = authority.Leaf, authority.PrivateKey.(*ecdsa.PrivateKey)
	p.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.caCert.Raw})
	return p, nil
}

func (p *PKI) makeAll() (err error) {
	if p.caKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	ca := template("rota-kube")
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, p.caKey.Public(), p.caKey)
	if err != nil {
		return err
	}
	if p.caCert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	p.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := p.write("ca", p.caPEM, p.caKey); err != nil {
		return err
	}
	serving := template("kube-apiserver")
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	serving.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP)}
	cert, key, err := p.sign(serving)
	if err != nil {
		return err
	}
	if err := p.write("serving", cert, key); err != nil {
		return err
	}
	// As which the API server asks aggregated API servers.
	proxy := template(proxyUser)
	proxy.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if cert, key, err = p.sign(proxy); err != nil {
		return err
	}
	if err := p.write("proxy", cert, key); err != nil {
		return err
	}
	// Signs the tokens of service accounts: a bare key, no certificate.
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	return p.write("service-account", nil, key)
}

// Client returns a certificate and key, in PEM, of a client that is a user.
func (p *PKI) Client(user string, groups ...string) (certPEM, keyPEM []byte, err error) {
	t := template(user)
	t.Subject.Organization = groups
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	certPEM, key, err := p.sign(t)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client certificate for %s: %w", user, err)
	}
	keyPEM, err = encodeKey(key)
	return certPEM, keyPEM, err
}

func (p *PKI) crt(name string) string { return filepath.Join(p.dir, name+".crt") }
func (p *PKI) key(name string) string { return filepath.Join(p.dir, name+".key") }

func (p *PKI) sign(t *x509.Certificate) ([]byte, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, p.caCert, key.Public(), p.caKey)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key, nil
}

func (p *PKI) write(name string, certPEM []byte, key *ecdsa.PrivateKey) error {
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.key(name), keyPEM, 0o600); err != nil {
		return err
	}
	if certPEM == nil {
		return nil
	}
	return os.WriteFile(p.crt(name), certPEM, 0o600)
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks in containers may differ
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

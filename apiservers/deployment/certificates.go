package deployment

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"
)

// A pair is a certificate with its key, and its usage.
type pair struct {
	cert, key string
	usage     x509.ExtKeyUsage
	cure      string
}

var pairs = []pair{
	{"tls-cert-file", "tls-private-key-file", x509.ExtKeyUsageServerAuth, "renew it: kubeadm certs renew apiserver"},
	{"etcd-certfile", "etcd-keyfile", x509.ExtKeyUsageClientAuth, "renew it: kubeadm certs renew apiserver-etcd-client"},
	{"kubelet-client-certificate", "kubelet-client-key", x509.ExtKeyUsageClientAuth,
		"renew it: kubeadm certs renew apiserver-kubelet-client"},
	{"proxy-client-cert-file", "proxy-client-key-file", x509.ExtKeyUsageClientAuth,
		"renew it: kubeadm certs renew front-proxy-client"},
}

// soon is the remaining lifetime from which a certificate is noted.
const soon = 30 * 24 * time.Hour

// checkCertificates refuses certificates that cannot be used.
func (p *planner) checkCertificates() {
	for _, name := range []string{
		"client-ca-file", "requestheader-client-ca-file", "etcd-cafile", "kubelet-certificate-authority", "oidc-ca-file",
		"peer-ca-file",
	} {
		p.bundle(name)
	}
	for _, pair := range pairs {
		if leaf := p.checkPair(pair); leaf != nil {
			switch pair.cert {
			case "tls-cert-file":
				p.checkServing(leaf)
			case "proxy-client-cert-file":
				p.checkProxy(leaf, p.intermediates(pair.cert))
			}
		}
	}
	p.checkAccounts()
}

// bundle parses the file of certificate authorities of a flag. It returns nil if the flag is not given.
func (p *planner) bundle(name string) []*x509.Certificate {
	f := p.file(p.line.Value(name))
	if f == nil || p.line.Value(name) == "" {
		return nil
	}
	const cure = "give the certificate of the authority, in PEM"
	certs, err := parseCertificates(f.text)
	if err != nil {
		p.refuse("--"+name+"="+f.path, cure, "%v", err)
		return nil
	}
	valid := false
	for _, c := range certs {
		valid = valid || p.o.Now.Before(c.NotAfter)
	}
	if !valid {
		p.refuse("--"+name+"="+f.path, "renew the authority", "all its certificates have expired, the last on %s",
			certs[len(certs)-1].NotAfter.Format(time.DateOnly))
	}
	return certs
}

// checkPair checks a certificate and its key, and returns the certificate.
func (p *planner) checkPair(pair pair) *x509.Certificate {
	if p.line.Value(pair.cert) == "" || p.line.Value(pair.key) == "" {
		return nil
	}
	cert, key := p.file(p.line.Value(pair.cert)), p.file(p.line.Value(pair.key))
	if cert == nil || key == nil {
		return nil // reported by collect
	}
	object := "--" + pair.cert + "=" + cert.path
	certs, err := parseCertificates(cert.text)
	if err != nil {
		p.refuse(object, "give a certificate in PEM", "%v", err)
		return nil
	}
	leaf := certs[0]
	if _, err := tls.X509KeyPair(cert.text, key.text); err != nil {
		p.refuse("--"+pair.key+"="+key.path, "give that certificate's key", "it is not the key of %s: %v", cert.path, err)
	}
	switch now := p.o.Now; {
	case now.After(leaf.NotAfter):
		p.refuse(object, pair.cure, "it expired on %s", leaf.NotAfter.Format(time.DateOnly))
	case now.Before(leaf.NotBefore):
		p.refuse(object, "check the clock", "it is valid from %s only", leaf.NotBefore.Format(time.DateTime))
	case now.Add(soon).After(leaf.NotAfter):
		p.note("%s expires on %s: renew it, then write the manifests again", cert.path, leaf.NotAfter.Format(time.DateOnly))
	}
	if len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, pair.usage) &&
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		want := "clients"
		if pair.usage == x509.ExtKeyUsageServerAuth {
			want = "servers"
		}
		p.refuse(object, "give one that is", "it is not for %s, by its extended key usage", want)
	}
	return leaf
}

// intermediates returns the certificates of a file after the first.
func (p *planner) intermediates(flag string) *x509.CertPool {
	pool := x509.NewCertPool()
	certs, _ := parseCertificates(p.file(p.line.Value(flag)).text) // checkPair has read it
	for i, c := range certs {
		if i > 0 {
			pool.AddCert(c)
		}
	}
	return pool
}

// frontName is the default server name with which `rota front` checks API servers.
const frontName = "kubernetes"

// checkServing refuses a certificate without the names that clients use.
func (p *planner) checkServing(leaf *x509.Certificate) {
	var missing []string
	for _, name := range p.serverNames() {
		if leaf.VerifyHostname(bracket(name)) != nil {
			missing = append(missing, name)
		}
	}
	if leaf.VerifyHostname(frontName) != nil {
		p.note("--tls-cert-file=%s does not hold the name %q: give rota front a --server-name that it holds",
			p.line.Value("tls-cert-file"), frontName)
	}
	if len(missing) == 0 {
		return
	}
	p.refuse("--tls-cert-file="+p.line.Value("tls-cert-file"),
		"add them to apiServer.certSANs of kubeadm's ClusterConfiguration, remove apiserver.crt and apiserver.key, and run "+
			"kubeadm init phase certs apiserver --config FILE",
		"it does not hold %s, by which clients reach the Deployment; it holds %s",
		strings.Join(missing, ", "), strings.Join(holds(leaf), ", "))
}

// bracket formats an address for VerifyHostname.
func bracket(name string) string {
	if net.ParseIP(name) != nil {
		return "[" + name + "]"
	}
	return name
}

func holds(leaf *x509.Certificate) []string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return []string{"no name"}
	}
	return names
}

// serverNames are the names by which clients reach the API servers: as the Service of the Deployment, as the Service
// that every Pod has in its environment, and as the names that the user gives.
func (p *Plan) serverNames() []string {
	return append([]string{"kubernetes.default.svc", p.o.Name + "." + p.o.Namespace + ".svc"}, p.o.Names...)
}

// checkProxy refuses a client certificate that extension API servers would not accept.
func (p *planner) checkProxy(leaf *x509.Certificate, intermediates *x509.CertPool) {
	authorities := p.bundle("requestheader-client-ca-file")
	object := "--proxy-client-cert-file=" + p.line.Value("proxy-client-cert-file")
	if len(authorities) > 0 {
		roots := x509.NewCertPool()
		for _, a := range authorities {
			roots.AddCert(a)
		}
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: intermediates, CurrentTime: p.o.Now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		})
		var unknown x509.UnknownAuthorityError
		if errors.As(err, &unknown) {
			p.refuse(object, "give the one that it has signed", "it is not signed by --requestheader-client-ca-file=%s, so "+
				"that extension API servers would not believe it", p.line.Value("requestheader-client-ca-file"))
		}
	}
	allowed := p.line.List("requestheader-allowed-names")
	if len(allowed) > 0 && !slices.Contains(allowed, leaf.Subject.CommonName) {
		p.refuse(object, "give one of such a name", "its name %q is none of --requestheader-allowed-names=%s",
			leaf.Subject.CommonName, strings.Join(allowed, ","))
	}
}

// checkAccounts refuses a key whose tokens would not be accepted by any API server.
func (p *planner) checkAccounts() {
	signing := p.file(p.line.Value("service-account-signing-key-file"))
	if signing == nil || p.line.Value("service-account-signing-key-file") == "" {
		return
	}
	object := "--service-account-signing-key-file=" + signing.path
	private, err := keyutil.ParsePrivateKeyPEM(signing.text)
	if err != nil {
		p.refuse(object, "give a private key in PEM", "%v", err)
		return
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		p.refuse(object, "give an RSA or ECDSA key", "it cannot sign")
		return
	}
	want := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	for _, name := range p.line.Values("service-account-key-file") {
		f := p.file(name)
		if f == nil {
			return // reported by collect
		}
		keys, err := keyutil.ParsePublicKeysPEM(f.text)
		if err != nil {
			p.refuse("--service-account-key-file="+f.path, "give a public or private key in PEM", "%v", err)
			return
		}
		for _, k := range keys {
			if public, ok := k.(crypto.PublicKey); ok && want.Equal(public) {
				return
			}
		}
	}
	p.refuse(object, "name its public key with --service-account-key-file as well",
		"it belongs to no --service-account-key-file, so that no API server would accept the tokens")
}

func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for rest := bytes.TrimSpace(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, c)
	}
	if len(certs) == 0 {
		return nil, errors.New("it holds no certificate in PEM")
	}
	return certs, nil
}

package conformance

import (
	"crypto/tls"

	"k8s.io/client-go/util/cert"
)

// NewCertificate returns what a server at 127.0.0.1 shows, and the authority that a client trusts, in PEM.
func NewCertificate() (server *tls.Config, authority []byte, err error) {
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	}, chain, nil
}

// Package peer connects the members of a rota, so that a request that reaches one member can be served by another one,
// the owner of its object.
//
// Connections use mutual TLS without a certificate authority. Each process makes a key pair when it starts, and
// publishes the fingerprint of the key and its address in its Lease (Entry). Both sides of a connection accept only
// the key in the Lease of a member that the table names. So a process that can write the rota's Leases can act as a
// member here. Such a process can also join the rota.
//
// A member serves a request from another member or refuses it, but never forwards it. So a request takes at most one
// hop.
package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"
)

// Key is the key pair of a process. Its methods may be called concurrently.
type Key struct {
	private     *ecdsa.PrivateKey
	fingerprint string

	mu   sync.Mutex
	id   string
	cert *tls.Certificate // with the name id
}

// NewKey makes a key pair.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	k := &Key{private: private}
	cert, err := k.certificate("")
	if err != nil {
		return nil, err
	}
	k.fingerprint = fingerprint(cert.Leaf)
	return k, nil
}

// certificate returns a certificate with a member's ID as its name, which tells the other side which Lease has the key.
// Nothing else in it counts.
func (k *Key) certificate(id string) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cert != nil && k.id == id {
		return k.cert, nil
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: id}, NotBefore: time.Unix(0, 0),
		NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.private.Public(), k.private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	k.id, k.cert = id, &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k.private, Leaf: leaf}
	return k.cert, nil
}

// Entry returns the entry of a member with this key that listens on address.
func (k *Key) Entry(address string) Entry { return Entry{address, k.fingerprint} }

func fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// matches reports whether the other side of a connection has the key of an entry.
func (e Entry) matches(s *tls.ConnectionState) bool {
	return e.Fingerprint != "" && fingerprint(s.PeerCertificates[0]) == e.Fingerprint
}

// Entry is what a member publishes so that others can reach it. The zero value is the entry of a member that cannot be
// reached.
type Entry struct {
	// Address is a host and a port.
	Address string
	// Fingerprint is the SHA-256 of the member's public key (SubjectPublicKeyInfo), in unpadded URL-safe base64.
	Fingerprint string
}

// String returns the entry's form in a Lease. It is empty for the zero value.
func (e Entry) String() string { return strings.TrimSpace(e.Address + " " + e.Fingerprint) }

// ParseEntry parses the form of String. It returns the zero value if the text is unreadable.
func ParseEntry(text string) Entry {
	fields := strings.Fields(text)
	if len(fields) != 2 {
		return Entry{}
	}
	return Entry{fields[0], fields[1]}
}

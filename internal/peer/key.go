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
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Key is the key pair of a process.
type Key struct {
	cert        tls.Certificate
	fingerprint string
}

// NewKey makes a key pair.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{ // peers compare the key and nothing else
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
	return &Key{cert, fingerprint(leaf)}, nil
}

// Entry returns the entry of a member with this key that listens on address.
func (k *Key) Entry(address string) Entry { return Entry{address, k.fingerprint} }

func fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// matches reports whether the other side of a connection has the key of an entry.
func (e Entry) matches(state *tls.ConnectionState) bool {
	return state != nil && len(state.PeerCertificates) > 0 && e.Fingerprint != "" &&
		fingerprint(state.PeerCertificates[0]) == e.Fingerprint
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

// Package fronttest contains helpers for tests of proxies.
package fronttest

import (
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/rota-dev/rota/test/require"
)

// Certificate creates a certificate and its key for a server with the given name, both in PEM. The certificate comes
// with its authority.
func Certificate(t testing.TB, name string) (chain, key []byte) {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	require.NoError(t, err)
	return chain, key
}

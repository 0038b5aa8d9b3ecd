// Package fronttest has what the tests of proxies share.
package fronttest

import (
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/rota-dev/rota/test/require"
)

// Certificate makes a certificate for a server of that name, and its key, both in PEM. The certificate comes with its
// authority.
func Certificate(t testing.TB, name string) (chain, key []byte) {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	require.NoError(t, err)
	return chain, key
}

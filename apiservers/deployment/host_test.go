package deployment

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rota-dev/rota/apiservers/deployment/hosttest"
	"github.com/rota-dev/rota/test/require"
)

const pki = hosttest.PKI

// options are the defaults of the command.
func options(h *hosttest.Host) Options {
	return Options{
		From: "kube-apiserver.yaml", Root: h.Root, Name: "kube-apiserver", Namespace: "kube-system",
		Min: 2, Max: 6, CPU: resource.MustParse("1"), Now: h.Now,
	}
}

func manifest(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/kubeadm.yaml")
	require.NoError(t, err)
	return string(text)
}

package deployment

import (
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/deployment/hosttest"
	"github.com/rota-dev/rota/test/require"
)

// A badCase is a host or a manifest that something is wrong with.
type badCase struct {
	Name string
	// Replace has what stands in the manifest, and what stands there instead. Flag is added, and Files are written.
	Replace map[string]string
	Flag    string
	Files   map[string]string
	// Want are parts of the only finding: its object, what is wrong, what to do.
	Want []string

	host    func(*hosttest.Host)
	options func(*Options)
}

const lastFlag = "    - --tls-cert-file="

// kubeconfigTo is one with a server that is used, and another on loopback that is not.
func kubeconfigTo(server string) string {
	return "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: used}}], " +
		"clusters: [{name: used, cluster: {server: '" + server + "'}}, {name: unused, cluster: {server: 'https://127.0.0.1'}}]}"
}

// badCases are those that testdata/refused.yaml cannot have.
var badCases = []badCase{
	{Name: "master-count", Flag: "--endpoint-reconciler-type=master-count", options: func(o *Options) { o.JoinKubernetes = true }, Want: []string{"master-count", "would remove"}},
	{Name: "unset what is not there", options: func(o *Options) { o.Unset = []string{"profiling"} }, Want: []string{"--unset profiling", "does not have the flag"}},
	{Name: "etcd client certificate missing", host: func(h *hosttest.Host) { h.Remove(pki + "apiserver-etcd-client.crt") }, Want: []string{"--etcd-certfile=" + pki + "apiserver-etcd-client.crt", "there is no file", "--pki"}},
	{Name: "etcd client certificate is a server's", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"etcd/ca"), pki+"apiserver-etcd-client", "x", x509.ExtKeyUsageServerAuth, nil)
	}, Want: []string{"--etcd-certfile", "not for clients"}},
	{Name: "serving certificate without the names", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"ca"), pki+"apiserver", "x", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
			c.DNSNames = []string{"kubernetes", "kubernetes.default.svc"}
		})
	}, Want: []string{"--tls-cert-file", "does not hold kube-apiserver.kube-system.svc,", "certSANs"}},
	{Name: "serving certificate without the name that clients use", options: func(o *Options) { o.Names = []string{"10.0.0.100"} }, Want: []string{"does not hold 10.0.0.100,"}},
	{Name: "serving certificate expired", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"ca"), pki+"apiserver", "x", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
			c.DNSNames, c.NotAfter = hosttest.ServiceNames, h.Now.Add(-time.Minute)
		})
	}, Want: []string{"--tls-cert-file", "it expired on", "kubeadm certs renew apiserver"}},
	{Name: "serving certificate of tomorrow", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"ca"), pki+"apiserver", "x", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
			c.DNSNames, c.NotBefore = hosttest.ServiceNames, h.Now.Add(time.Hour)
		})
	}, Want: []string{"--tls-cert-file", "valid from", "clock"}},
	{Name: "another key", host: func(h *hosttest.Host) { h.WriteKey(pki+"apiserver.key", h.Key()) }, Want: []string{"--tls-private-key-file=" + pki + "apiserver.key", "not the key of " + pki + "apiserver.crt"}},
	{Name: "proxy client of another authority", host: func(h *hosttest.Host) { h.Authority(pki + "front-proxy-ca") }, Want: []string{"--proxy-client-cert-file", "not signed by --requestheader-client-ca-file"}},
	{Name: "signing key without its public key", host: func(h *hosttest.Host) {
		public := h.Read(pki + "sa.pub")
		h.AccountKey(pki + "sa")
		h.Write(pki+"sa.pub", public)
	}, Want: []string{"--service-account-signing-key-file", "no API server would accept"}},
	{Name: "file in a folder of the image", Flag: "--oidc-ca-file=/etc/oidc.crt", host: func(h *hosttest.Host) { h.Write("/etc/oidc.crt", h.Read(pki+"ca.crt")) }, Want: []string{"--oidc-ca-file=/etc/oidc.crt", "would hide", "separate folder"}},
	{Name: "too large", host: func(h *hosttest.Host) { h.Write("/srv/policies/audit.yaml", strings.Repeat("# long\n", 200_000)) }, Want: []string{"--audit-policy-file", "1 MiB"}},
}

// TestRefused: everything that cannot work is refused by its name, with what to do, and nothing else is said.
func TestRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/refused.yaml")
	require.NoError(t, err)
	var cases []badCase
	require.NoError(t, yaml.UnmarshalStrict(text, &cases))
	for _, c := range append(cases, badCases...) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			h := hosttest.New(t)
			text := manifest(t)
			for old, now := range c.Replace {
				if !strings.Contains(text, old) {
					t.Fatalf("no %q in the manifest", old)
				}
				text = strings.Replace(text, old, now, 1)
			}
			if c.Flag != "" {
				text = strings.Replace(text, lastFlag, "    - "+c.Flag+"\n"+lastFlag, 1)
			}
			for name, text := range c.Files {
				h.Write(name, text)
			}
			// /srv/policies is mounted at /etc/kubernetes/policies; flags of cases name the host's path.
			text = strings.ReplaceAll(text, "=/srv/policies/", "=/etc/kubernetes/policies/")
			if c.host != nil {
				c.host(h)
			}
			o := options(h)
			if c.options != nil {
				c.options(&o)
			}
			p, err := New([]byte(text), o)
			var refused *RefusedError
			if !errors.As(err, &refused) || p != nil {
				t.Fatalf("plan %v, error %v, want a refusal", p, err)
			}
			if len(refused.Findings) != 1 {
				t.Fatalf("%d findings, want one: %v", len(refused.Findings), err)
			}
			for _, want := range c.Want {
				want = strings.ReplaceAll(want, "=/srv/policies/", "=/etc/kubernetes/policies/")
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nwant %q in it", err, want)
				}
			}
			if f := refused.Findings[0]; f.Object == "" || f.Wrong == "" || f.Cure == "" {
				t.Errorf("%+v has an empty part", f)
			}
		})
	}
}

// TestRefusedAtOnce: all that is wrong is said at once.
func TestRefusedAtOnce(t *testing.T) {
	h := hosttest.New(t)
	h.Remove(pki + "apiserver-etcd-client.key")
	h.Write(pki+"ca.crt", "nonsense")
	text := strings.NewReplacer("--audit-log-path=-", "--audit-log-path=/var/log/audit.log",
		"https://10.0.0.21:2379", "https://127.0.0.1:2379").Replace(manifest(t))
	_, err := New([]byte(text), options(h))
	var refused *RefusedError
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	for _, want := range []string{"--audit-log-path", "--etcd-servers", "--etcd-keyfile", "--client-ca-file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in %v", want, err)
		}
	}
	if len(refused.Findings) != 4 {
		t.Errorf("%d findings, want 4:\n%v", len(refused.Findings), err)
	}
}

package deployment

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/apiservers/deployment/hosttest"
)

// A badCase is a host or a manifest that something is wrong with.
type badCase struct {
	name string
	// replace has pairs of what stands in the manifest and what stands there instead.
	replace []string
	host    func(*hosttest.Host)
	options func(*Options)
	// want are parts of the only finding: its object, what is wrong, what to do.
	want []string
}

const (
	lastMount = "    - mountPath: /etc/kubernetes/policies"
	lastFlag  = "    - --tls-cert-file="
)

// kubeconfigTo is one with a server that is used, and another on loopback that is not.
func kubeconfigTo(server string) string {
	return "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: used}}], " +
		"clusters: [{name: used, cluster: {server: '" + server + "'}}, {name: unused, cluster: {server: 'https://127.0.0.1'}}]}"
}

// flagAdded adds a flag.
func flagAdded(text string) []string { return []string{lastFlag, "    - " + text + "\n" + lastFlag} }

var badCases = []badCase{
	{name: "not YAML", replace: []string{"apiVersion: v1", "apiVersion: [v1"}, want: []string{"kube-apiserver.yaml", "is no manifest"}},
	{name: "another kind", replace: []string{"kind: Pod", "kind: Deployment"}, want: []string{`it is "Deployment"`}},
	{name: "a field that Pods do not have", replace: []string{"hostNetwork: true", "hostNetwork: true\n  hostNetworks: 1"}, want: []string{"hostNetworks"}},
	{name: "mirror Pod", replace: []string{"  annotations:", "  annotations:\n    kubernetes.io/config.mirror: abc"}, want: []string{"mirror Pod"}},
	{name: "two containers", replace: []string{"  hostNetwork: true", "  - name: second\n    image: x\n  hostNetwork: true"}, want: []string{"it has 2 containers"}},
	{name: "another program", replace: []string{"    - kube-apiserver\n", "    - etcd\n"}, want: []string{`the command is "etcd"`}},
	{name: "a shell", replace: []string{"    - kube-apiserver\n", "    - sh\n    - -c\n    - kube-apiserver\n"}, want: []string{`the command is "sh"`}},
	{name: "init containers", replace: []string{"  hostNetwork: true", "  initContainers: [{name: i, image: x}]\n  hostNetwork: true"}, want: []string{"1 init containers"}},
	{name: "hooks", replace: []string{"    name: kube-apiserver\n    ports", "    name: kube-apiserver\n    lifecycle: {preStop: {exec: {command: [x]}}}\n    ports"}, want: []string{"has hooks"}},
	{name: "old version", replace: []string{":v1.36.3", ":v1.26.9"}, want: []string{"v1.26.9", "v1.27 or newer", "upgrade"}},

	{name: "audit log on the host", replace: []string{"--audit-log-path=-", "--audit-log-path=/var/log/kubernetes/audit.log"}, want: []string{"--audit-log-path=/var/log/kubernetes/audit.log", "file on the host", "--set audit-log-path=-"}},
	{name: "no anonymous requests", replace: flagAdded("--anonymous-auth=false"), want: []string{"--anonymous-auth=false", "401", "--authentication-config"}},
	{name: "port", replace: []string{"--secure-port=6443", "--secure-port=0"}, want: []string{"--secure-port=0"}},
	{name: "signer on a socket", replace: flagAdded("--service-account-signing-endpoint=/run/signer.sock"), want: []string{"--service-account-signing-endpoint=/run/signer.sock", "socket"}},
	{name: "duration", replace: flagAdded("--request-timeout=1 minute"), want: []string{"--request-timeout=1 minute"}},
	{name: "master-count", replace: flagAdded("--endpoint-reconciler-type=master-count"), options: func(o *Options) { o.JoinKubernetes = true }, want: []string{"master-count", "would remove"}},
	{name: "unset what is not there", options: func(o *Options) { o.Unset = []string{"profiling"} }, want: []string{"--unset profiling", "does not have the flag"}},

	{name: "etcd on loopback", replace: []string{"https://10.0.0.21:2379", "https://127.0.0.1:2379"}, want: []string{"--etcd-servers=https://127.0.0.1:2379", "its own host only", "--set etcd-servers="}},
	{name: "one etcd of two on loopback", replace: []string{"https://10.0.0.21:2379", "https://10.0.0.21:2379,https://localhost:2379"}, want: []string{"--etcd-servers=https://localhost:2379"}},
	{name: "etcd of events on loopback", replace: flagAdded("'--etcd-servers-overrides=/events#https://10.0.0.21:2381;https://[::1]:2381'"), want: []string{"--etcd-servers-overrides=https://[::1]:2381"}},
	{name: "etcd on the unspecified address", replace: []string{"https://10.0.0.21:2379", "https://0.0.0.0:2379"}, want: []string{"--etcd-servers=https://0.0.0.0:2379", "its own host only"}},
	{name: "etcd on a socket", replace: []string{"https://10.0.0.21:2379", "unix:///run/etcd.sock"}, want: []string{"--etcd-servers=unix:///run/etcd.sock"}},
	{name: "no etcd", replace: []string{"    - --etcd-servers=https://10.0.0.21:2379\n", ""}, want: []string{"--etcd-servers", "missing"}},
	{name: "etcd authority not given", replace: []string{"    - --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt\n", ""}, want: []string{"--etcd-cafile", "over TLS"}},
	{name: "etcd client certificate missing", host: func(h *hosttest.Host) { h.Remove(pki + "apiserver-etcd-client.crt") }, want: []string{"--etcd-certfile=" + pki + "apiserver-etcd-client.crt", "there is no file", "--pki"}},
	{name: "etcd client certificate is a server's", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"etcd/ca"), pki+"apiserver-etcd-client", "x", x509.ExtKeyUsageServerAuth, nil)
	}, want: []string{"--etcd-certfile", "not for clients"}},
	{name: "no serving certificate", replace: []string{"    - --tls-cert-file=/etc/kubernetes/pki/apiserver.crt\n    - --tls-private-key-file=/etc/kubernetes/pki/apiserver.key\n", ""}, want: []string{"--tls-cert-file", "it is missing"}},
	{name: "no key", replace: []string{"    - --kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key\n", ""}, want: []string{"--kubelet-client-key", "there is --kubelet-client-certificate"}},

	{name: "serving certificate without the names", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"ca"), pki+"apiserver", "x", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
			c.DNSNames = []string{"kubernetes", "kubernetes.default.svc"}
		})
	}, want: []string{"--tls-cert-file", "does not hold kube-apiserver.kube-system.svc,", "certSANs"}},
	{name: "serving certificate without the name that clients use", options: func(o *Options) { o.Names = []string{"10.0.0.100"} }, want: []string{"does not hold 10.0.0.100,"}},
	{name: "serving certificate expired", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"ca"), pki+"apiserver", "x", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
			c.DNSNames, c.NotAfter = hosttest.ServiceNames, h.Now.Add(-time.Minute)
		})
	}, want: []string{"--tls-cert-file", "it expired on", "kubeadm certs renew apiserver"}},
	{name: "serving certificate of tomorrow", host: func(h *hosttest.Host) {
		h.Issue(h.Authority(pki+"ca"), pki+"apiserver", "x", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
			c.DNSNames, c.NotBefore = hosttest.ServiceNames, h.Now.Add(time.Hour)
		})
	}, want: []string{"--tls-cert-file", "valid from", "clock"}},
	{name: "another key", host: func(h *hosttest.Host) { h.WriteKey(pki+"apiserver.key", h.Key()) }, want: []string{"--tls-private-key-file=" + pki + "apiserver.key", "no key of " + pki + "apiserver.crt"}},
	{name: "no certificate", host: func(h *hosttest.Host) { h.Write(pki+"front-proxy-client.crt", "nonsense") }, want: []string{"--proxy-client-cert-file", "no certificate in PEM"}},
	{name: "no authority", host: func(h *hosttest.Host) { h.Write(pki+"ca.crt", "nonsense") }, want: []string{"--client-ca-file=" + pki + "ca.crt", "no certificate in PEM"}},
	{name: "empty file", host: func(h *hosttest.Host) { h.Write(pki+"encryption.yaml", "") }, want: []string{"--encryption-provider-config", "is empty"}},
	{name: "proxy client of another authority", host: func(h *hosttest.Host) { h.Authority(pki + "front-proxy-ca") }, want: []string{"--proxy-client-cert-file", "not signed by --requestheader-client-ca-file"}},
	{name: "proxy client of another name", replace: []string{"allowed-names=front-proxy-client", "allowed-names=aggregator"}, want: []string{"--proxy-client-cert-file", `"front-proxy-client" is none`}},
	{name: "signing key without its public key", host: func(h *hosttest.Host) {
		public := h.Read(pki + "sa.pub")
		h.AccountKey(pki + "sa")
		h.Write(pki+"sa.pub", public)
	}, want: []string{"--service-account-signing-key-file", "no API server would accept"}},
	{name: "signing key is none", host: func(h *hosttest.Host) { h.Write(pki+"sa.key", "nonsense") }, want: []string{"--service-account-signing-key-file=" + pki + "sa.key"}},

	{name: "hostPath without certificates", replace: []string{"  volumes:\n", "  volumes:\n  - hostPath: {path: /var/lib/plugins}\n    name: plugins\n", lastMount, "    - {mountPath: /plugins, name: plugins}\n" + lastMount}, want: []string{"volume plugins", "/var/lib/plugins of the host"}},
	{name: "a volume that static Pods cannot have", replace: []string{"  volumes:\n", "  volumes:\n  - name: odd\n    configMap: {name: odd}\n"}, want: []string{"volume odd"}},
	{name: "file not mounted, and not there", replace: flagAdded("--oidc-ca-file=/srv/oidc.crt"), want: []string{"--oidc-ca-file=/srv/oidc.crt", "there is no file"}},
	{name: "relative path", replace: flagAdded("--oidc-ca-file=oidc.crt"), want: []string{"--oidc-ca-file=oidc.crt", "no absolute path"}},
	{name: "file in a folder of the image", replace: flagAdded("--oidc-ca-file=/etc/oidc.crt"), host: func(h *hosttest.Host) { h.Write("/etc/oidc.crt", h.Read(pki+"ca.crt")) }, want: []string{"--oidc-ca-file=/etc/oidc.crt", "would hide", "folder of its own"}},
	{name: "file of a flag that nobody knows", replace: flagAdded("--new-file=/srv/policies/new.yaml"), want: []string{"--new-file=/srv/policies/new.yaml", "there is no file"}},
	{name: "environment from a Secret", replace: []string{"    name: kube-apiserver\n    ports", "    env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]\n    name: kube-apiserver\n    ports"}, want: []string{"env A"}},
	{name: "too large", host: func(h *hosttest.Host) { h.Write("/srv/policies/audit.yaml", strings.Repeat("# long\n", 200_000)) }, want: []string{"--audit-policy-file", "1 MiB"}},

	{name: "KMS plugin on a socket", host: func(h *hosttest.Host) {
		h.Write(pki+"encryption.yaml", "resources: [{resources: [secrets], providers: [{kms: {apiVersion: v2, name: k, endpoint: unix:///run/kms.sock}}]}]")
	}, want: []string{"--encryption-provider-config", "unix:///run/kms.sock"}},
	{name: "encryption is no YAML", host: func(h *hosttest.Host) { h.Write(pki+"encryption.yaml", "a: [") }, want: []string{"--encryption-provider-config", "no YAML"}},
	{name: "konnectivity on a socket", replace: flagAdded("--egress-selector-config-file=/srv/policies/egress.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/egress.yaml", "egressSelections: [{name: cluster, connection: {proxyProtocol: GRPC, transport: {uds: {udsName: /run/k.sock}}}}]")
	}, want: []string{"--egress-selector-config-file", "/run/k.sock", "TCP"}},
	{name: "konnectivity on loopback", replace: flagAdded("--egress-selector-config-file=/srv/policies/egress.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/egress.yaml", "egressSelections: [{name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://127.0.0.1:8131'}}}}]")
	}, want: []string{"--egress-selector-config-file", "the proxy http://127.0.0.1:8131", "own host only", "where Pods reach it"}},
	{name: "authentication webhook on loopback", replace: flagAdded("--authentication-token-webhook-config-file=/srv/policies/hook.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/hook.yaml", kubeconfigTo("https://127.0.0.1:21362/authenticate"))
	}, want: []string{"--authentication-token-webhook-config-file", "the server https://127.0.0.1:21362/authenticate", "own host only"}},
	{name: "authorization webhook on loopback", replace: flagAdded("--authorization-webhook-config-file=/srv/policies/hook.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/hook.yaml", kubeconfigTo("https://0.0.0.0:8443"))
	}, want: []string{"--authorization-webhook-config-file", "https://0.0.0.0:8443"}},
	{name: "audit webhook through a proxy on loopback", replace: flagAdded("--audit-webhook-config-file=/srv/policies/hook.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/hook.yaml", strings.Replace(kubeconfigTo("https://10.0.0.9"), "server:", "proxy-url: 'http://[::]:3128', server:", 1))
	}, want: []string{"--audit-webhook-config-file", "the proxy http://[::]:3128"}},
	{name: "image policy on loopback", replace: flagAdded("--admission-control-config-file=/srv/policies/admission.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/admission.yaml", "plugins: [{name: ImagePolicyWebhook, configuration: {imagePolicy: {kubeConfigFile: hook.yaml}}}]")
		h.Write("/srv/policies/hook.yaml", kubeconfigTo("https://LocalHost.:8443"))
	}, want: []string{"admission.yaml=/etc/kubernetes/policies/hook.yaml", "the server https://LocalHost.:8443"}},
	{name: "authorizer on loopback", replace: flagAdded("--authorization-config=/srv/policies/authz.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/authz.yaml", "authorizers: [{type: Webhook, name: w, webhook: {connectionInfo: {type: KubeConfigFile, kubeConfigFile: hook.yaml}}}]")
		h.Write("/srv/policies/hook.yaml", kubeconfigTo("https://127.0.0.1:8443"))
	}, want: []string{"authz.yaml=/etc/kubernetes/policies/hook.yaml", "the server https://127.0.0.1:8443"}},
	{name: "issuer on loopback", replace: flagAdded("--oidc-issuer-url=https://localhost:5556/dex"), want: []string{"--oidc-issuer-url=https://localhost:5556/dex", "the issuer", "own host only"}},
	{name: "issuer discovered on loopback", replace: flagAdded("--authentication-config=/srv/policies/authn.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/authn.yaml", "jwt: [{issuer: {url: 'https://dex.example', discoveryURL: 'https://127.0.0.1:5556/.well-known/openid-configuration'}}]")
	}, want: []string{"--authentication-config", "the issuer https://127.0.0.1:5556"}},
	{name: "traces to loopback", replace: flagAdded("--tracing-config-file=/srv/policies/tracing.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/tracing.yaml", "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: 'localhost:4317'}")
	}, want: []string{"--tracing-config-file", "the collector localhost:4317"}},
	{name: "traces to the default", replace: flagAdded("--tracing-config-file=/srv/policies/tracing.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/tracing.yaml", "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration}")
	}, want: []string{"--tracing-config-file", "no endpoint", "localhost:4317", "--unset tracing-config-file"}},
	{name: "proxy on loopback", replace: []string{"    name: kube-apiserver\n    ports", "    env: [{name: HTTPS_PROXY, value: 'http://127.0.0.1:3128'}, {name: NO_PROXY, value: '127.0.0.1'}]\n    name: kube-apiserver\n    ports"}, want: []string{"env HTTPS_PROXY", "http://127.0.0.1:3128"}},
	{name: "traces to loopback by DNS", replace: flagAdded("--tracing-config-file=/srv/policies/tracing.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/tracing.yaml", "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: 'dns:///localhost:4317'}")
	}, want: []string{"--tracing-config-file", "the collector dns:///localhost:4317", "own host only"}},
	{name: "traces to a socket", replace: flagAdded("--tracing-config-file=/srv/policies/tracing.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/tracing.yaml", "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: 'unix:///run/otel.sock'}")
	}, want: []string{"--tracing-config-file", "the collector unix:///run/otel.sock", "socket on the host"}},
	{name: "traces to a socket without slashes", replace: flagAdded("--tracing-config-file=/srv/policies/tracing.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/tracing.yaml", "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: 'unix:/run/otel.sock'}")
	}, want: []string{"--tracing-config-file", "the collector unix:/run/otel.sock", "socket on the host"}},
	{name: "traces to an abstract socket", replace: flagAdded("--tracing-config-file=/srv/policies/tracing.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/tracing.yaml", "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: 'unix-abstract:otel'}")
	}, want: []string{"--tracing-config-file", "the collector unix-abstract:otel", "socket on the host"}},
	{name: "proxy on loopback without a port", replace: []string{"    name: kube-apiserver\n    ports", "    env: [{name: https_proxy, value: '127.0.0.1'}]\n    name: kube-apiserver\n    ports"}, want: []string{"env https_proxy", "the proxy 127.0.0.1", "own host only"}},
	{name: "probes not allowed", replace: flagAdded("--authentication-config=/srv/policies/authn.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/authn.yaml", "anonymous: {enabled: true, conditions: [{path: /livez}]}")
	}, want: []string{"--authentication-config", "/readyz", "anonymous.conditions"}},
	{name: "webhook with a program", replace: flagAdded("--audit-webhook-config-file=/srv/policies/hook.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/hook.yaml", "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: get-token, interactiveMode: Never}}}]")
	}, want: []string{"--audit-webhook-config-file", "get-token"}},
	{name: "webhook without its certificate", replace: flagAdded("--admission-control-config-file=/srv/policies/admission.yaml"), host: func(h *hosttest.Host) {
		h.Write("/srv/policies/admission.yaml", "plugins: [{name: ImagePolicyWebhook, path: image.yaml}]")
		h.Write("/srv/policies/image.yaml", "imagePolicy: {kubeConfigFile: hook.conf}")
		h.Write("/srv/policies/hook.conf", "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: https://x, certificate-authority: hook.crt}}]")
	}, want: []string{"hook.crt", "there is no file"}},
}

// TestRefused: everything that cannot work is refused by its name, with what to do, and nothing else is said.
func TestRefused(t *testing.T) {
	for _, c := range badCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := hosttest.New(t)
			text := manifest(t)
			for i := 0; i+1 < len(c.replace); i += 2 {
				changed := strings.Replace(text, c.replace[i], c.replace[i+1], 1)
				if !strings.Contains(text, c.replace[i]) {
					t.Fatalf("no %q in the manifest", c.replace[i])
				}
				text = changed
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
			for _, want := range c.want {
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

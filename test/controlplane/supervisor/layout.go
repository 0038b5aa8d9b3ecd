package supervisor

import (
	_ "embed"
	"fmt"
	"os"
)

const (
	serviceRange = "10.0.0.0/16"
	serviceIP    = "10.0.0.1" // what the API server gives to the service "kubernetes"
)

//go:embed audit-policy.yaml
var defaultAuditPolicy []byte

// A layout is the servers of one control plane with their ports, files and flags, before anything runs.
type layout struct {
	opt  options
	dir  *dir
	pki  *PKI
	etcd *server
	api  []*server
	kcm  *server // nil without --controller-manager

	etcdURL            string
	apiURLs, auditLogs []string
	kubeconfig         string
}

func newLayout(opt options, d *dir) (*layout, error) {
	l := &layout{opt: opt, dir: d, kubeconfig: d.join("kubeconfig"), auditLogs: []string{}}
	var err error
	if l.pki, err = newPKI(d.join(pkiDir)); err != nil {
		return nil, err
	}
	if err := l.addEtcd(); err != nil {
		return nil, err
	}
	if err := l.writeAuditPolicy(); err != nil {
		return nil, err
	}
	for i := range opt.apiServers {
		if err := l.addAPIServer(i); err != nil {
			return nil, err
		}
	}
	if err := l.writeKubeconfig(l.kubeconfig, "rota-kube-admin", "system:masters"); err != nil {
		return nil, err
	}
	if opt.controllerManager {
		return l, l.addControllerManager()
	}
	return l, nil
}

func (l *layout) servers() []*server {
	all := append([]*server{l.etcd}, l.api...)
	if l.kcm != nil {
		all = append(all, l.kcm)
	}
	return all
}

func (l *layout) addEtcd() error {
	client, err := reservePort()
	if err != nil {
		return err
	}
	peer, err := reservePort()
	if err != nil {
		return err
	}
	const name = "etcd-0"
	clientURL, peerURL := client.url("http"), peer.url("http")
	l.etcdURL = clientURL
	args := []string{
		"--name=" + name,
		"--data-dir=" + l.dir.join(name),
		"--listen-client-urls=" + clientURL,
		"--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=" + name + "=" + peerURL,
		"--socket-reuse-port",
		"--log-level=warn",
		"--quota-backend-bytes=8589934592",
		// Alone in its cluster it need not wait long to elect itself.
		"--heartbeat-interval=50", "--election-timeout=500",
		"--unsafe-no-fsync",
	}
	l.etcd = &server{
		name:    name,
		program: l.opt.assets.Etcd(),
		log:     l.dir.join(name + ".log"),
		args:    args,
		ready:   httpProbe(clientURL+"/health", nil),
	}
	return nil
}

func (l *layout) addAPIServer(i int) error {
	port, err := reservePort()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("apiserver-%d", i)
	l.apiURLs = append(l.apiURLs, port.url("https"))
	args := []string{
		"--etcd-servers=" + l.etcdURL,
		"--bind-address=127.0.0.1",
		"--secure-port=" + port.String(),
		"--permit-port-sharing",
		"--cert-dir=" + l.dir.join(name),
		"--tls-cert-file=" + l.pki.crt("serving"),
		"--tls-private-key-file=" + l.pki.key("serving"),
		"--client-ca-file=" + l.pki.crt("ca"),
		"--requestheader-client-ca-file=" + l.pki.crt("ca"),
		"--requestheader-allowed-names=" + proxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + l.pki.crt("proxy"),
		"--proxy-client-key-file=" + l.pki.key("proxy"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + l.pki.key("service-account"),
		"--service-account-key-file=" + l.pki.key("service-account"),
		"--service-cluster-ip-range=" + serviceRange,
		// Nothing runs inside this cluster that would use the Endpoints of the API servers, which may not be on loopback
		// anyway.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--feature-gates=" + l.opt.featureGates,
		// Only the machine should limit tests and measurements.
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1500",
	}
	if !l.opt.controllerManager {
		// Nobody makes the default service accounts that this plugin demands of every pod.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if l.opt.audit {
		log := l.dir.join("audit-" + name + ".log")
		l.auditLogs = append(l.auditLogs, log)
		args = append(args,
			"--audit-policy-file="+l.dir.join("audit-policy.yaml"),
			"--audit-log-path="+log,
			// Blocking: the line is written before the response is sent, so that nothing is lost; no rotation, so that there is
			// one file.
			"--audit-log-mode=blocking", "--audit-log-maxsize=0")
	}
	l.api = append(l.api, &server{
		name:    name,
		program: l.opt.assets.APIServer(),
		log:     l.dir.join(name + ".log"),
		args:    args,
		ready:   l.apiProbe(port.url("https")),
	})
	return nil
}

func (l *layout) addControllerManager() error {
	port, err := reservePort()
	if err != nil {
		return err
	}
	const name = "controller-manager"
	config := l.dir.join(name + ".kubeconfig")
	if err := l.writeKubeconfig(config, "system:kube-controller-manager", "system:masters"); err != nil {
		return err
	}
	l.kcm = &server{
		name:    name,
		log:     l.dir.join(name + ".log"),
		program: l.opt.managerPath,
		args: []string{
			"--kubeconfig=" + config,
			"--bind-address=127.0.0.1",
			"--secure-port=" + port.String(),
			"--permit-port-sharing",
			"--cert-dir=" + l.dir.join(name),
			"--tls-cert-file=" + l.pki.crt("serving"),
			"--tls-private-key-file=" + l.pki.key("serving"),
			"--leader-elect=false",
			"--service-account-private-key-file=" + l.pki.key("service-account"),
			"--root-ca-file=" + l.pki.crt("ca"),
			"--kube-api-qps=500", "--kube-api-burst=1000",
		},
		ready: l.apiProbe(port.url("https"), "/healthz"),
	}
	return nil
}

func (l *layout) writeKubeconfig(path, user string, groups ...string) error {
	b, err := l.pki.Kubeconfig(l.apiURLs, user, groups...)
	if err != nil {
		return fmt.Errorf("make a kubeconfig: %w", err)
	}
	return os.WriteFile(path, b, 0o600)
}

func (l *layout) writeAuditPolicy() error {
	policy := defaultAuditPolicy
	if l.opt.auditPolicy != "" {
		var err error
		if policy, err = os.ReadFile(l.opt.auditPolicy); err != nil {
			return fmt.Errorf("read the audit policy: %w", err)
		}
	}
	return os.WriteFile(l.dir.join("audit-policy.yaml"), policy, 0o600)
}

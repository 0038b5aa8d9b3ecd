package balance

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/controlplane/build"
	"github.com/rota-dev/rota/test/process"
)

const (
	readyLimit = 3 * time.Minute
	endLimit   = time.Minute
)

// A server is an API server on the etcd of a control plane.
type server struct {
	name, address string
	command       []string
	log           string
	run           *process.Process
}

// A Key is a kind of private key.
type Key string

// Kinds of keys. kubeadm makes RSA by default.
const (
	P256    Key = "ECDSA P-256"
	RSA2048 Key = "RSA 2048"
)

func (k Key) generate() (crypto.Signer, error) {
	if k == RSA2048 {
		return rsa.GenerateKey(rand.Reader, 2048)
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// newServer makes an API server whose certificate has its name. It does not start it.
func newServer(
	ctx context.Context, c *controlplane.ControlPlane, dir, name string, kind Key, goaway float64,
) (*server, error) {
	binary, err := build.Binary(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	pki := filepath.Join(c.Dir(), "pki")
	cert, key := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := issue(pki, name, kind, cert, key); err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	address, err := process.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	account := filepath.Join(pki, "service-account.key")
	return &server{name: name, address: address, log: filepath.Join(dir, name+".log"), command: []string{
		binary, "apiserver",
		"--etcd-servers=" + c.Etcd()[0],
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--permit-port-sharing", "--cert-dir=" + dir,
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
		"--client-ca-file=" + filepath.Join(pki, "ca.crt"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + account, "--service-account-key-file=" + account,
		"--service-cluster-ip-range=10.0.0.0/16",
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--disable-admission-plugins=ServiceAccount",
		// As `rota apiservers` has it, but quicker.
		"--shutdown-delay-duration=5s", "--shutdown-send-retry-after=true",
		"--shutdown-watch-termination-grace-period=5s",
		"--goaway-chance=" + strconv.FormatFloat(goaway, 'f', -1, 64),
	}}, nil
}

func (s *server) start() (err error) {
	s.run, err = process.Start(process.Options{
		Name: s.name, Command: s.command, Variable: "ROTA_BALANCE", Log: s.log,
	})
	return err
}

// ready returns when the server says so, as it tells a proxy.
func (s *server) ready(ctx context.Context) error {
	// Whose certificate it is does not matter here.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	err := await.Until(ctx, 100*time.Millisecond, readyLimit, func() string {
		if err := s.run.Failure(); err != nil {
			return err.Error()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+"/readyz", nil)
		if err != nil {
			return err.Error()
		}
		resp, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		_ = resp.Body.Close() // the status is enough
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return ""
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w; its log ends:\n%s", s.name, err, s.run.Tail())
	}
	return nil
}

// restart ends the server as the kubelet does, and starts it again.
func (s *server) restart(ctx context.Context) error {
	if err := s.run.End(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-s.run.Done():
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(endLimit):
		return fmt.Errorf("%s has not ended within %v", s.name, endLimit)
	}
	if err := s.start(); err != nil {
		return err
	}
	return s.ready(ctx)
}

func (s *server) kill() {
	if s.run != nil {
		s.run.Kill()
	}
}

// issue writes a serving certificate for loopback, signed by a control plane's authority.
func issue(pki, name string, kind Key, certFile, keyFile string) error {
	authority, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	key, err := kind.generate()
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 7),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	return errors.Join(err,
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
}

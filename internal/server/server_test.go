package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/require"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// pair makes a certificate of its own, with a serial number.
func pair(t *testing.T, serial int64) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{"dispatch"}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// secret is a mounted Secret: the kubelet changes its files together, by a symbolic link.
type secret struct {
	t     *testing.T
	dir   string
	count int
}

func (s *secret) write(certPEM, keyPEM []byte) {
	s.t.Helper()
	s.count++
	version := filepath.Join(s.dir, fmt.Sprintf("..%d", s.count))
	err := errors.Join(os.Mkdir(version, 0o700), os.WriteFile(filepath.Join(version, "tls.crt"), certPEM, 0o600),
		os.WriteFile(filepath.Join(version, "tls.key"), keyPEM, 0o600),
		os.Symlink(filepath.Base(version), filepath.Join(s.dir, "..new")),
		os.Rename(filepath.Join(s.dir, "..new"), filepath.Join(s.dir, "..data")))
	require.NoError(s.t, err)
	if s.count == 1 {
		for _, name := range []string{"tls.crt", "tls.key"} {
			require.NoError(s.t, os.Symlink(filepath.Join("..data", name), filepath.Join(s.dir, name)))
		}
		return
	}
	require.NoError(s.t, os.RemoveAll(filepath.Join(s.dir, fmt.Sprintf("..%d", s.count-1))))
}

func newSecret(t *testing.T) *secret {
	s := &secret{t: t, dir: t.TempDir()}
	s.write(pair(t, 1))
	return s
}

// start serves until the end of the test.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Address, o.Logger = "127.0.0.1:0", logr.Discard()
	s, err := Listen(t.Context(), o)
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() { ran <- s.Run() }()
	t.Cleanup(func() {
		_ = s.Close()
		require.NoError(t, <-ran)
	})
	return s
}

func (s *Server) url() string {
	scheme := "http"
	if s.certs != nil {
		scheme = "https"
	}
	return scheme + "://" + s.Addr().String()
}

// client trusts any certificate.
func client(t *testing.T, config *tls.Config) *http.Client {
	if config == nil {
		config = &tls.Config{}
	}
	config.InsecureSkipVerify = true // the tests look at the certificate themselves
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: config.NextProtos == nil}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, r.Proto)
})

func TestHTTPS(t *testing.T) {
	dir := newSecret(t).dir
	s := start(t, Options{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Handler: hello,
	})
	for _, c := range []struct {
		config *tls.Config
		want   string
	}{
		{nil, "HTTP/2.0"},
		{&tls.Config{NextProtos: []string{"http/1.1"}}, "HTTP/1.1"},
		{&tls.Config{MaxVersion: tls.VersionTLS12}, "HTTP/2.0"},
		{&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, ""}, // it is refused
	} {
		answer, err := client(t, c.config).Get(s.url())
		if err != nil {
			if c.want != "" {
				t.Error(err)
			}
			continue
		}
		text, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if string(text) != c.want {
			t.Errorf("%s, want %q", text, c.want)
		}
	}
}

// TestCertificates: while clients come all the time, the certificate changes again and again. No client is refused, and
// each change is noticed. A key that does not fit is not taken.
func TestCertificates(t *testing.T) {
	files := newSecret(t)
	s := start(t, Options{
		CertFile: filepath.Join(files.dir, "tls.crt"), KeyFile: filepath.Join(files.dir, "tls.key"), Handler: hello,
		times: times{reread: 50 * time.Millisecond},
	})
	var serial atomic.Int64
	var requests atomic.Int32
	ctx, end := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	kept := client(t, nil) // its connection outlives the certificates
	for i := range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				c := kept
				if i > 0 {
					c = &http.Client{Transport: &http.Transport{
						TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
					}}
				}
				answer, err := c.Get(s.url())
				if err != nil {
					t.Error(err)
					return
				}
				if i > 0 {
					serial.Store(answer.TLS.PeerCertificates[0].SerialNumber.Int64())
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				requests.Add(1)
			}
		})
	}
	defer clients.Wait()
	defer end()
	serves := func(want int64) {
		t.Helper()
		err := await.Until(t.Context(), 5*time.Millisecond, 20*time.Second, func() string {
			if got := serial.Load(); got != want {
				return fmt.Sprintf("serial number %d is served, want %d", got, want)
			}
			return ""
		})
		if err != nil {
			t.Error(err)
		}
	}
	serves(1)
	for n := int64(2); n < 12; n++ {
		files.write(pair(t, n))
		serves(n)
	}
	certPEM, _ := pair(t, 12)
	_, keyPEM := pair(t, 12)
	files.write(certPEM, keyPEM)
	time.Sleep(200 * time.Millisecond) // four times as long as it takes to notice
	serves(11)
	files.write(pair(t, 13))
	serves(13)
	t.Logf("%d requests", requests.Load())
}

// A client that sends nothing, or slowly, is cut off, whatever the handler does.
func TestSlowClients(t *testing.T) {
	unread := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	s := start(t, Options{Handler: unread, times: times{
		header: 200 * time.Millisecond, body: 300 * time.Millisecond, idle: 400 * time.Millisecond,
	}})
	for name, text := range map[string]string{
		"nothing": "", "half a header": "POST / HTTP/1.1\r\nHost: a\r\n",
		"half a body":  "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nabc",
		"no more":      "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"large header": "GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			_, err = io.WriteString(conn, text)
			require.NoError(t, err)
			begun := time.Now()
			answer, err := io.ReadAll(conn) // until it is closed
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				t.Errorf("the connection is still there after %v; the answer is %q", time.Since(begun), answer)
			}
			if name == "large header" && !strings.HasPrefix(string(answer), "HTTP/1.1 431 ") {
				t.Errorf("the answer is %q", answer)
			}
		})
	}
}

// A request that waits for its answer is not cut off, with a body or without.
func TestPatientClients(t *testing.T) {
	dir := newSecret(t).dir
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as who has read all of it does
		select {
		case <-time.After(3 * time.Second):
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		}
	})
	// Handshakes are under these bounds, too, and take long on a machine that is busy.
	bounds := times{header: time.Second, body: time.Second, idle: time.Second, ping: time.Second}
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range []*Server{
		start(t, Options{Handler: slow, times: bounds}),
		start(t, Options{Handler: slow, times: bounds, CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key"}),
	} {
		for _, body := range []string{"", "{}"} {
			all.Go(func() {
				answer, err := client(t, nil).Post(s.url(), "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					t.Errorf("%s, body %q: %s", s.url(), body, answer.Status)
				}
			})
		}
	}
}

// A client with HTTP/2 that does not read what it gets does not hold a handler for ever.
func TestStuckReader(t *testing.T) {
	dir := newSecret(t).dir
	ended := make(chan error, 1)
	s := start(t, Options{
		CertFile: dir + "/tls.crt", KeyFile: dir + "/tls.key", times: times{stuck: 200 * time.Millisecond, ping: 200 * time.Millisecond},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for text := bytes.Repeat([]byte("a"), 1<<20); ; {
				if _, err := w.Write(text); err != nil {
					ended <- err
					return
				}
			}
		}),
	})
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(
		t.Context(), "tcp", s.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	// Preface, SETTINGS with a large window, WINDOW_UPDATE, and HEADERS: GET / of https://a.
	_, err = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff" +
		"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00" +
		"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x87\x84\x41\x01a"))
	require.NoError(t, err)
	require.Receive(t, ended, 20*time.Second, "the handler still writes")
}

// Shutdown waits for requests under way, and breaks them off when its time is over.
func TestShutdown(t *testing.T) {
	for _, patient := range []bool{true, false} {
		begun, end := make(chan struct{}), make(chan struct{})
		s := start(t, Options{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			select {
			case <-end:
			case <-r.Context().Done():
			}
		})})
		answered := make(chan error, 1)
		go func() {
			answer, err := client(t, nil).Get(s.url())
			if err == nil {
				answer.Body.Close()
			}
			answered <- err
		}()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if patient {
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			time.AfterFunc(50*time.Millisecond, func() { close(end) })
		}
		err := s.Shutdown(ctx)
		cancel()
		if got := <-answered; (err == nil) != patient || (got == nil) != patient {
			t.Errorf("patient %v: Shutdown returned %v, the client got %v", patient, err, got)
		}
	}
}

func TestRefuses(t *testing.T) {
	dir := newSecret(t).dir
	for _, o := range []Options{
		{Address: "127.0.0.1:0", CertFile: dir + "/tls.crt"},
		{Address: "127.0.0.1:0", KeyFile: dir + "/tls.key"},
		{Address: "127.0.0.1:0", CertFile: dir + "/missing.crt", KeyFile: dir + "/tls.key"},
		{Address: "127.0.0.1:99999"},
	} {
		if s, err := Listen(t.Context(), o); err == nil {
			t.Errorf("%+v: no error", o)
			_ = s.Close()
		}
	}
}

// Command scaling serves figures of dispatchers as external metrics of Kubernetes, for a HorizontalPodAutoscaler that
// scales their workers. See the README.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/rota-dev/rota/dispatch/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scaling:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("scaling", flag.ContinueOnError)
	url := flags.String("url", "", "URL of the dispatchers' Service, as https://website-dispatch.operators.svc:8443")
	token := flags.String("token-file", "", "file with a token for the dispatchers' audience")
	ca := flags.String("ca-file", "", "file with the authority of the dispatchers' certificates (default the system's)")
	listen := flags.String("listen", ":6443", "address to serve on")
	cert := flags.String("tls-cert-file", "", "file with the certificate to serve with")
	key := flags.String("tls-key-file", "", "file with its key")
	clientCA := flags.String("client-ca-file", "", "file with the authority of the API server's client certificate: "+
		"requestheader-client-ca-file of the ConfigMap kube-system/extension-apiserver-authentication (default: who can "+
		"connect can read the figures)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := client.New(client.Options{URLs: []string{*url}, TokenFile: *token, CAFile: *ca})
	if err != nil {
		return err
	}
	certificates, err := certwatcher.New(*cert, *key)
	if err != nil {
		return fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
	}
	config := &tls.Config{GetCertificate: certificates.GetCertificate, MinVersion: tls.VersionTLS12}
	if *clientCA != "" {
		text, err := os.ReadFile(*clientCA)
		if err != nil {
			return fmt.Errorf("--client-ca-file: %w", err)
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--client-ca-file: %s has no certificates", *clientCA)
		}
	}
	go func() { _ = certificates.Start(ctx) }() // it ends with ctx
	server := &http.Server{
		Addr: *listen, Handler: newHandler(c), TLSConfig: config, ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout: 30 * time.Second,
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS("", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

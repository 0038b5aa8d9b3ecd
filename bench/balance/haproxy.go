package balance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/rota-dev/rota/apiservers/front/haproxy"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/process"
)

// haproxyConfig passes TCP through to the server with the fewest connections. Servers are out of use until enable.
var haproxyConfig = template.Must(template.New("").Parse(`global
    stats socket {{.Socket}} mode 600 level admin
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout check 5s
    timeout client 1h
    timeout server 1h
frontend clients
    bind {{.Listen}}
    default_backend api
backend api
    balance leastconn
    option httpchk
    http-check send meth GET uri /readyz
    http-check expect status 200
    default-server check check-ssl verify none inter 500ms fall 2 rise 1
{{- range .Servers}}
    server {{.Name}} {{.Address}} disabled
{{- end}}
`))

// A balancer is a running HAProxy.
type balancer struct {
	address, socket string
	run             *process.Process
}

func startBalancer(ctx context.Context, dir string, servers []*server) (*balancer, error) {
	binary, err := haproxy.Find()
	if err != nil {
		return nil, err
	}
	address, err := process.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	b := &balancer{address: address, socket: filepath.Join(dir, "haproxy.sock")}
	type line struct{ Name, Address string }
	var lines []line
	for _, s := range servers {
		lines = append(lines, line{s.name, s.address})
	}
	var text bytes.Buffer
	if err := haproxyConfig.Execute(&text, map[string]any{
		"Socket": b.socket, "Listen": b.address, "Servers": lines,
	}); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	if b.run, err = process.Start(process.Options{
		Name: "haproxy", Command: []string{binary, "-db", "-f", config}, Variable: "ROTA_BALANCE",
		Log: filepath.Join(dir, "haproxy.log"),
	}); err != nil {
		return nil, err
	}
	err = await.Until(ctx, 50*time.Millisecond, readyLimit, func() string {
		if err := b.run.Failure(); err != nil {
			return err.Error()
		}
		if _, err := haproxy.Ask(ctx, b.socket, "show info"); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		b.run.Kill()
		return nil, fmt.Errorf("haproxy does not answer: %w", err)
	}
	return b, nil
}

// order sends a command that is answered by nothing.
func (b *balancer) order(ctx context.Context, command string) error {
	answer, err := haproxy.Ask(ctx, b.socket, command)
	if text := strings.TrimSpace(string(answer)); err == nil && text != "" {
		err = errors.New(text)
	}
	if err != nil {
		return fmt.Errorf("haproxy: %s: %w", command, err)
	}
	return nil
}

// enable has a server get connections.
func (b *balancer) enable(ctx context.Context, name string) error {
	return b.order(ctx, "enable server api/"+name)
}

// cut ends all connections with a server. It goes on getting new ones.
func (b *balancer) cut(ctx context.Context, name string) error {
	return b.order(ctx, "shutdown sessions server api/"+name)
}

package split

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/apiservers/split"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/process"
)

// undivided is the name of the single process, and of its Lease.
const undivided = "kube-controller-manager"

// manager is a kube-controller-manager that runs.
type manager struct {
	name    string
	process *process.Process
	url     string
	http    *http.Client
}

// command is the command line of the single process, with the flags that kubeadm has. Leases last longer, because a
// leader on a busy core would end the measurement.
func command(kubeconfig, pki string, s Scenario) []string {
	return []string{
		undivided,
		"--allocate-node-cidrs=true",
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--client-ca-file=" + filepath.Join(pki, "ca.crt"),
		"--cluster-cidr=10.244.0.0/16",
		"--cluster-signing-cert-file=" + filepath.Join(pki, "ca.crt"),
		"--cluster-signing-key-file=" + filepath.Join(pki, "ca.key"),
		"--controllers=*,bootstrapsigner,tokencleaner",
		"--kubeconfig=" + kubeconfig,
		"--leader-elect=true",
		"--leader-elect-lease-duration=60s",
		"--leader-elect-renew-deadline=50s",
		"--root-ca-file=" + filepath.Join(pki, "ca.crt"),
		"--service-account-private-key-file=" + filepath.Join(pki, "service-account.key"),
		"--service-cluster-ip-range=10.96.0.0/12",
		"--use-service-account-credentials=true",
		"--kube-api-qps=" + strconv.Itoa(s.QPS),
		"--kube-api-burst=" + strconv.Itoa(s.Burst),
	}
}

// program is a process to start: a name and flags.
type program struct {
	name  string
	flags []string
}

// programs returns what a case runs. The groups are those that `rota split kcm` makes of the single process.
func programs(c Case, undividedWords []string, version string) ([]program, error) {
	if c.Form == One {
		return []program{{undivided, undividedWords[1:]}}, nil
	}
	parsed, err := split.ParseCommand(undividedWords)
	if err != nil {
		return nil, err
	}
	catalog, err := split.CatalogOf(version)
	if err != nil {
		return nil, err
	}
	plan, err := split.New(split.Input{Command: parsed}, nil, catalog)
	if err != nil {
		return nil, err
	}
	var out []program
	for _, g := range plan.Groups {
		flags := g.Command.Words()[1:]
		if c.Form == Thirds {
			n := float64(len(plan.Groups))
			flags = append(flags, fmt.Sprintf("--kube-api-qps=%.2f", float64(c.Scenario.QPS)/n),
				fmt.Sprintf("--kube-api-burst=%.0f", float64(c.Scenario.Burst)/n))
		}
		out = append(out, program{g.Name, flags})
	}
	return out, nil
}

// startManager starts a kube-controller-manager on a free port.
func startManager(binary, dir, cpus string, p program, admin *rest.Config) (*manager, error) {
	address, err := process.FreeAddress(context.Background())
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(admin)
	config.Host = "https://" + address
	config.Insecure, config.CAData, config.CAFile = true, nil, ""
	m := &manager{name: p.name, url: config.Host}
	if m.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	words := append(pinned(cpus, binary, "controller-manager"), p.flags...)
	m.process, err = process.Start(process.Options{
		Name: p.name, Command: append(words, "--secure-port="+port), Variable: "ROTA_SPLITBENCH",
		Log: filepath.Join(dir, p.name+".log"),
	})
	return m, err
}

// pinned returns a command that runs on some processors only.
func pinned(cpus string, words ...string) []string {
	if cpus == "" {
		return words
	}
	return append([]string{"taskset", "-c", cpus}, words...)
}

// pinnedBinary writes a program that runs the binary on some processors only.
func pinnedBinary(dir, cpus, binary string) (string, error) {
	if cpus == "" {
		return binary, nil
	}
	path := filepath.Join(dir, "pinned")
	text := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(pinned(cpus, "'"+binary+"'"), " "))
	return path, os.WriteFile(path, []byte(text), 0o700)
}

// get fetches a page.
func get(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return body, err
}

// healthy waits until the process answers.
func (m *manager) healthy(ctx context.Context) error {
	err := await.Until(ctx, 100*time.Millisecond, time.Minute, func() string {
		if m.process.Lingers() == "" {
			return "it has ended"
		}
		if _, err := get(ctx, m.http, m.url+"/healthz"); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		return fmt.Errorf("%s: %w; its log ends:\n%s", m.name, err, m.process.Tail())
	}
	return nil
}

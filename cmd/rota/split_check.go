package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/split"
)

// clusterTimeout bounds the two requests of `rota split kcm --check-cluster`.
const clusterTimeout = 20 * time.Second

// errUndivided is returned by `rota split kcm --check` if something differs.
var errUndivided = errors.New("the running processes differ from the plan")

// checkSplit prints how the running processes differ from the plan.
func checkSplit(ctx context.Context, w io.Writer, stdin io.Reader, p *split.Plan, o splitOptions) error {
	var processes []split.Process
	for _, path := range o.check {
		found, err := processesAt(path, stdin)
		if err != nil {
			return fmt.Errorf("split kcm: --check: %w", err)
		}
		processes = append(processes, found...)
	}
	var leases map[string]split.LeaseState
	if o.checkCluster {
		cfg, err := loadKubeconfig(o.kubeconfig)
		if err != nil {
			return err
		}
		found, read, err := processesIn(ctx, cfg, p.Namespace())
		if err != nil {
			return fmt.Errorf("split kcm: --check-cluster: %w", err)
		}
		processes, leases = append(processes, found...), read
	}
	findings := split.Compare(p, processes)
	if o.checkCluster {
		findings = append(findings, split.CompareLeases(p, leases)...)
	}
	for _, f := range findings {
		_, _ = fmt.Fprintln(w, f)
	}
	if len(findings) > 0 {
		return errUndivided
	}
	_, _ = fmt.Fprintf(w, "as planned: %d processes in %d groups\n", len(processes), len(p.Groups))
	return nil
}

// processesAt reads a folder as a kubelet does, a file, or standard input.
func processesAt(path string, stdin io.Reader) ([]split.Process, error) {
	if path == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, err
		}
		return split.ParseProcesses("standard input", "", text)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files, host := []string{path}, ""
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		files, host = nil, path
		for _, e := range entries {
			if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	var out []split.Process
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := split.ParseProcesses(file, host, text)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// processesIn reads the Pods and Leases of a cluster. The API server has a copy of each static Pod.
func processesIn(ctx context.Context, cfg *rest.Config, namespace string,
) ([]split.Process, map[string]split.LeaseState, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	var out []split.Process
	for _, pod := range pods.Items {
		pod.Kind = "Pod" // a list omits it
		text, err := yaml.Marshal(pod)
		if err != nil {
			return nil, nil, err
		}
		found, err := split.ParseProcesses("Pod "+pod.Name, pod.Spec.NodeName, text)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, found...)
	}
	list, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	leases := map[string]split.LeaseState{}
	for _, l := range list.Items {
		leases[l.Name] = leaseState(l, time.Now())
	}
	return out, leases, nil
}

func leaseState(l coordinationv1.Lease, now time.Time) split.LeaseState {
	s := split.LeaseState{
		Holder:   ptr.Deref(l.Spec.HolderIdentity, ""),
		Duration: time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second,
	}
	if l.Spec.RenewTime != nil {
		s.Age = now.Sub(l.Spec.RenewTime.Time)
	}
	return s
}

package bench

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine is the machine and the software of a run.
type Machine struct {
	CPUs       int    `json:"cpus"`
	CPU        string `json:"cpu"`
	Memory     uint64 `json:"memory"`
	System     string `json:"system"`
	Go         string `json:"go"`
	Revision   string `json:"revision"`
	Kubernetes string `json:"kubernetes"`
	Libraries  string `json:"libraries"`
}

// machine describes the machine and the software of this run.
func (p *plane) machine(ctx context.Context) Machine {
	m := Machine{
		CPUs: runtime.NumCPU(), CPU: firstField("/proc/cpuinfo", "model name"), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Kubernetes: p.version(ctx), Revision: revision(ctx),
	}
	kib, _ := strconv.ParseUint(strings.TrimSuffix(firstField("/proc/meminfo", "MemTotal"), " kB"), 10, 64) // 0: unknown
	m.Memory = kib << 10
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, d := range info.Deps {
		if d.Path == "sigs.k8s.io/controller-runtime" || d.Path == "k8s.io/client-go" {
			m.Libraries = strings.TrimSpace(m.Libraries + " " + d.Path[strings.LastIndexByte(d.Path, '/')+1:] + " " + d.Version)
		}
	}
	return m
}

// revision is the revision of the current checkout. Changes of the page and its results do not count.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(out))
	clean := exec.CommandContext(ctx, "git", "status", "--porcelain", "--", ":/", ":!*/benchmarks*")
	out, err = clean.Output()
	if err != nil || len(bytes.TrimSpace(out)) > 0 {
		name += " with changes"
	}
	return name
}

// firstField returns the first value of a key in a file of lines "key: value", as Linux has under /proc.
func firstField(path, key string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for scan := bufio.NewScanner(bytes.NewReader(text)); scan.Scan(); {
		k, v, ok := strings.Cut(scan.Text(), ":")
		if ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

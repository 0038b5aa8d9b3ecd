package footprint

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// machine says where, and with what, this runs.
func (c *cluster) machine(ctx context.Context) Machine {
	m := Machine{
		CPUs: runtime.NumCPU(), CPU: firstField("/proc/cpuinfo", "model name"), System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Kubernetes: "unknown", Revision: "unknown",
	}
	if body, err := c.get(ctx, c.config.Host+"/version"); err == nil {
		m.Kubernetes = gitVersion(body)
	}
	kib, _ := strconv.ParseUint(strings.TrimSuffix(firstField("/proc/meminfo", "MemTotal"), " kB"), 10, 64) // 0: unknown
	m.Memory = kib << 10
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			m.Revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				m.Revision += " and changes"
			}
		}
	}
	for _, d := range info.Deps {
		if d.Path == "sigs.k8s.io/controller-runtime" || d.Path == "k8s.io/client-go" {
			m.Libraries = strings.TrimSpace(m.Libraries + " " + d.Path[strings.LastIndexByte(d.Path, '/')+1:] + " " + d.Version)
		}
	}
	return m
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

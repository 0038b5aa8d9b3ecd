package front

import (
	"fmt"
	"path"
	"strings"
)

// checkUnits returns an error for files that the units cannot see.
func (f *Front) checkUnits(p Programs) error {
	for _, file := range []string{p.Binary, p.AgentBinary, p.Kubeconfig, f.CA, f.Client, f.Dir} {
		for _, hidden := range []string{"/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"} {
			if strings.HasPrefix(file+"/", hidden) {
				return fmt.Errorf("file %s: the units do not see what is below %s: move it", file, path.Clean(hidden))
			}
		}
	}
	return nil
}

// units returns the units of the proxy and of the agent. Both restart forever: before the host has joined its cluster
// there are no certificates, and systemd would give up after five starts in 10 s. The proxy does not wait for the
// network to be online: it uses numeric addresses, and keeps checking. The units see the host's files read-only, except
// the folder of sockets, and do not see users' folders.
func (f *Front) units(p Programs) []File {
	config := path.Join(f.Dir, HAProxyFile)
	if f.Proxy == Envoy {
		config = path.Join(f.Dir, EnvoyFile)
	}
	var files []File
	for _, name := range []string{"rota-front.service", "rota-front-agent.service"} {
		files = append(files, File{name, render(name, struct {
			*Front
			Programs
			Config, MasterSocket string
			Files                int
			Privileged           bool
		}{f, p, config, MasterSocket, 2*f.MaxConnections + 1000, f.privileged()})})
	}
	return files
}

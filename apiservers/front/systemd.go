package front

import (
	"fmt"
	"path"
	"strings"
)

// checkUnits is the error of files that the units do not see.
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

// units are those of the proxy and of the agent. Both start again forever: before the host has joined its cluster there
// are no certificates, and systemd would give up after five starts in 10 s. The proxy needs no network that is online:
// the addresses are numbers, and checks go on. The units see the host's files read-only, but for the folder of sockets,
// and nothing of users' folders.
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

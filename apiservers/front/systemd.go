package front

import (
	"fmt"
	"path"
	"strings"
)

// Both units start again forever: before the host has joined its cluster there are no certificates, and systemd would
// give up after five starts in 10 s.

// What follows has them see the host's files read-only, but for the folder of sockets, and nothing of users' folders.
const confined = `NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
CapabilityBoundingSet=%s
`

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

const unitMark = "# The front as services of systemd: put these files into /etc/systemd/system."

// unit is the proxy's. It needs no network that is online: the addresses are numbers, and checks go on.
func (f *Front) unit(p Programs) string {
	config := path.Join(f.Dir, HAProxyFile)
	kind, check, run := "notify", fmt.Sprintf("ExecStartPre=%s -c -q -f %s\n", p.Binary, config),
		fmt.Sprintf("%s -Ws -S %s -f %s", p.Binary, path.Join(f.RunDir, MasterSocket), config)
	reload := fmt.Sprintf("ExecReload=%s -c -q -f %s\nExecReload=/bin/kill -USR2 $MAINPID\n", p.Binary, config)
	if f.Proxy == Envoy {
		kind, check, reload = "exec", "", ""
		run = fmt.Sprintf("%s --disable-hot-restart -c %s", p.Binary, path.Join(f.Dir, EnvoyFile))
	}
	capability := ""
	if f.privileged() {
		capability = "CAP_NET_BIND_SERVICE"
	}
	return fmt.Sprintf(unitMark+`
[Unit]
Description=The proxy before the API servers
After=network.target
StartLimitIntervalSec=0

[Service]
Type=%s
RuntimeDirectory=%s
RuntimeDirectoryMode=0700
%sExecStart=%s
%sKillMode=mixed
SuccessExitStatus=143
Restart=always
RestartSec=1
LimitNOFILE=%d
%s
[Install]
WantedBy=multi-user.target
`, kind, path.Base(f.RunDir), check, run, reload, 2*f.MaxConnections+1000,
		fmt.Sprintf(confined, capability))
}

func (f *Front) agentUnit(p Programs) string {
	return fmt.Sprintf(unitMark+`
[Unit]
Description=The agent that keeps the endpoints of the proxy before the API servers current
After=rota-front.service
StartLimitIntervalSec=0

[Service]
ExecStart=%s front agent --dir %s --kubeconfig %s
Restart=always
RestartSec=1
%sReadWritePaths=%s

[Install]
WantedBy=multi-user.target
`, p.AgentBinary, f.Dir, p.Kubeconfig, fmt.Sprintf(confined, ""), f.Dir)
}

package controlplane

import (
	"fmt"
	"io"
)

// Options say what kind of control plane to start. The zero value is one etcd and one API server with
// ShardedListAndWatch on.
type Options struct {
	// Audit has every API server write an audit log, see AuditLogs.
	Audit bool
	// AuditPolicy is the path of a policy file to use instead of the built-in one. It implies Audit.
	AuditPolicy string
	// APIServers that serve the same etcd: 1 or 2; 0 means 1.
	APIServers int
	// ControllerManager runs kube-controller-manager: garbage collection, deletion of namespaces, default service
	// accounts. Without it pods can be created without a service account.
	ControllerManager bool
	// Env, as name=value, is added to this process's environment for the servers.
	Env []string
	// Stderr receives the logs of all servers, written by another goroutine; nil shows none. A server's last lines are
	// part of the error when it dies.
	Stderr io.Writer
}

func (o Options) args() []string {
	var args []string
	if o.Audit {
		args = append(args, "--audit")
	}
	if o.AuditPolicy != "" {
		args = append(args, "--audit-policy="+o.AuditPolicy)
	}
	if o.APIServers != 0 {
		args = append(args, fmt.Sprintf("--apiservers=%d", o.APIServers))
	}
	if o.ControllerManager {
		args = append(args, "--controller-manager")
	}
	if o.Stderr != nil {
		args = append(args, "-v")
	}
	return args
}

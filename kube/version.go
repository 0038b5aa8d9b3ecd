package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"

	etcdversion "go.etcd.io/etcd/api/v3/version"
	"k8s.io/component-base/version"
)

func printVersion(w io.Writer) {
	fmt.Fprintf(w, "rota-kube: Kubernetes %s, etcd %s, %s\n",
		version.Get().GitVersion, etcdversion.Version, runtime.Version())
}

// checkVersion refuses a binary that does not know its Kubernetes version. The linker sets it; without it the API
// server calls itself v0.0.0 and kubectl and many controllers refuse to talk to it.
func checkVersion() error {
	if strings.HasPrefix(version.Get().GitVersion, "v0.0.0") {
		return errors.New("this binary was built without its Kubernetes version: " +
			"build it with `make kube`, not with a bare `go build`")
	}
	return nil
}

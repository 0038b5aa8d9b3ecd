package deployment

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Configuration files refer to other files, which are copied too, and to sockets and programs of the host, which cannot
// be.

func kubeconfigNames(p *planner, f *file) {
	config, err := clientcmd.Load(f.text)
	if err != nil {
		p.refuse(f.by+"="+f.path, "correct the file", "it is not a kubeconfig: %v", err)
		return
	}
	for _, c := range config.Clusters {
		p.addNamed(f, c.CertificateAuthority, home{in: inFiles})
	}
	for _, c := range usedClusters(config) {
		p.refuseLoopback(f.by+"="+f.path, "the server", c.Server)
		p.refuseLoopback(f.by+"="+f.path, "the proxy", c.ProxyURL)
	}
	for name, user := range config.AuthInfos {
		for _, file := range []string{user.ClientCertificate, user.ClientKey, user.TokenFile} {
			p.addNamed(f, file, home{in: inFiles})
		}
		if user.Exec != nil {
			p.refuse(f.by+"="+f.path, "use a certificate or a token", "user %s gets credentials from the program %s of the host",
				name, user.Exec.Command)
		}
	}
}

// addNamed adds a file that another file refers to, relative to that file.
func (p *planner) addNamed(f *file, name string, h home) {
	if name == "" {
		return
	}
	if !path.IsAbs(name) {
		name = path.Join(path.Dir(f.path), name)
	}
	p.add(name, f.path, h)
}

// walk calls visit for each string of a YAML file, with its key.
func (p *planner) walk(f *file, visit func(key, value string)) {
	var doc any
	if err := yaml.Unmarshal(f.text, &doc); err != nil {
		p.refuse(f.by+"="+f.path, "correct the file", "it is not YAML: %v", err)
		return
	}
	walkStrings("", doc, visit)
}

func walkStrings(key string, v any, visit func(key, value string)) {
	switch v := v.(type) {
	case map[string]any:
		for k, item := range v {
			walkStrings(k, item, visit)
		}
	case []any:
		for _, item := range v {
			walkStrings(key, item, visit)
		}
	case string:
		visit(key, v)
	}
}

func admissionNames(p *planner, f *file) {
	p.walk(f, func(key, value string) {
		switch key {
		case "path": // a plugin's configuration
			p.addNamed(f, value, home{in: inConfig, names: admissionNames})
		case "kubeConfigFile":
			p.addNamed(f, value, home{in: inFiles, names: kubeconfigNames})
		}
	})
}

func authorizationNames(p *planner, f *file) {
	p.walk(f, func(key, value string) {
		if key == "kubeConfigFile" {
			p.addNamed(f, value, home{in: inFiles, names: kubeconfigNames})
		}
	})
}

func egressNames(p *planner, f *file) {
	p.walk(f, func(key, value string) {
		switch key {
		case "udsName":
			p.refuse(f.by+"="+f.path, "connect over TCP, with httpConnect's transport.tcp", "%s is a socket on the host", value)
		case "url":
			p.refuseLoopback(f.by+"="+f.path, "the proxy", value)
		case "caBundle", "clientCert", "clientKey":
			p.addNamed(f, value, home{in: inFiles})
		}
	})
}

func encryptionNames(p *planner, f *file) {
	p.walk(f, func(key, value string) {
		if key == "endpoint" && strings.HasPrefix(value, "unix:") {
			p.refuse(f.by+"="+f.path, "keep this API server static, or have a sidecar of the Pods be the plugin",
				"%s is a socket of a KMS plugin on the host", value)
		}
	})
}

// authenticationNames checks that probes are allowed and issuers are reachable. It collects no files, since
// certificates are in the file itself.
func authenticationNames(p *planner, f *file) {
	var config struct {
		Anonymous *struct {
			Enabled    bool `json:"enabled"`
			Conditions []struct {
				Path string `json:"path"`
			} `json:"conditions"`
		} `json:"anonymous"`
		JWT []struct {
			Issuer struct {
				URL          string `json:"url"`
				DiscoveryURL string `json:"discoveryURL"`
			} `json:"issuer"`
		} `json:"jwt"`
	}
	if err := yaml.Unmarshal(f.text, &config); err != nil {
		p.refuse(f.by+"="+f.path, "correct the file", "it is not YAML: %v", err)
		return
	}
	for _, j := range config.JWT {
		p.refuseLoopback(f.by+"="+f.path, "the issuer", cmp.Or(j.Issuer.DiscoveryURL, j.Issuer.URL))
	}
	a := config.Anonymous
	if a == nil {
		return
	}
	allowed := func(probe string) bool {
		return a.Enabled && (len(a.Conditions) == 0 || slices.ContainsFunc(a.Conditions, func(c struct {
			Path string `json:"path"`
		}) bool {
			return c.Path == probe
		}))
	}
	for _, probe := range []string{"/livez", "/readyz"} {
		if !allowed(probe) {
			p.refuse(f.by+"="+f.path, "add "+probe+" to anonymous.conditions", "anonymous access to %s is off, so that probes "+
				"of the kubelet and checks of proxies get 401", probe)
		}
	}
}

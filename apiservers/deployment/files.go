package deployment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A file is a file that the API server reads.
type file struct {
	path string // in the container and in the Deployment's Pods
	by   string // the flag or file that refers to it
	text []byte
	in   string // the object that holds it: a suffix of its name
	key  string // in that object
}

// Objects that hold files. Files that are credentials are in Secrets.
const (
	inServing     = "serving"
	inEtcd        = "etcd-client"
	inKubelet     = "kubelet-client"
	inProxy       = "proxy-client"
	inAccounts    = "service-account"
	inAuthorities = "authorities"
	inFiles       = "files"
	inConfig      = "config" // the only ConfigMap
)

// A home is the place for a flag's file.
type home struct {
	in, key string // an empty key means the file's name
	// names collects the files that this file refers to.
	names func(*planner, *file)
}

var homes = map[string]home{
	"tls-cert-file":                 {in: inServing, key: "tls.crt"},
	"tls-private-key-file":          {in: inServing, key: "tls.key"},
	"etcd-cafile":                   {in: inEtcd, key: "ca.crt"},
	"etcd-certfile":                 {in: inEtcd, key: "tls.crt"},
	"etcd-keyfile":                  {in: inEtcd, key: "tls.key"},
	"kubelet-certificate-authority": {in: inKubelet, key: "ca.crt"},
	"kubelet-client-certificate":    {in: inKubelet, key: "tls.crt"},
	"kubelet-client-key":            {in: inKubelet, key: "tls.key"},
	"proxy-client-cert-file":        {in: inProxy, key: "tls.crt"},
	"proxy-client-key-file":         {in: inProxy, key: "tls.key"},

	"client-ca-file":               {in: inAuthorities, key: "client-ca.crt"},
	"requestheader-client-ca-file": {in: inAuthorities, key: "requestheader-client-ca.crt"},
	"oidc-ca-file":                 {in: inAuthorities, key: "oidc-ca.crt"},
	"peer-ca-file":                 {in: inAuthorities, key: "peer-ca.crt"},

	"service-account-key-file":         {in: inAccounts},
	"service-account-signing-key-file": {in: inAccounts},

	"encryption-provider-config":               {in: inFiles, names: encryptionNames},
	"token-auth-file":                          {in: inFiles},
	"authentication-token-webhook-config-file": {in: inFiles, names: kubeconfigNames},
	"authorization-webhook-config-file":        {in: inFiles, names: kubeconfigNames},
	"audit-webhook-config-file":                {in: inFiles, names: kubeconfigNames},

	"audit-policy-file":                {in: inConfig},
	"authentication-config":            {in: inConfig, names: authenticationNames},
	"authorization-config":             {in: inConfig, names: authorizationNames},
	"authorization-policy-file":        {in: inConfig},
	"admission-control-config-file":    {in: inConfig, names: admissionNames},
	"egress-selector-config-file":      {in: inConfig, names: egressNames},
	"tracing-config-file":              {in: inConfig, names: tracingNames},
	"allow-metric-labels-manifest":     {in: inConfig},
	"tls-sni-cert-key":                 {in: inFiles},
	"cloud-config":                     {in: inFiles},
	"requestheader-allowed-names":      {},
	"etcd-prefix":                      {},
	"etcd-servers-overrides":           {},
	"audit-log-path":                   {}, // checkFlags refuses files
	"cert-dir":                         {}, // unused with --tls-cert-file
	"service-account-jwks-uri":         {},
	"cors-allowed-origins":             {},
	"debug-socket-path":                {},
	"service-account-signing-endpoint": {},
}

// collect reads all files that the flags name, and the files that these refer to.
func (p *planner) collect() {
	for _, f := range p.line.Flags {
		h, known := homes[f.Name]
		switch {
		case f.Value == "" || known && h.in == "":
		case f.Name == "tls-sni-cert-key":
			pair, _, _ := strings.Cut(f.Value, ":")
			for name := range strings.SplitSeq(pair, ",") {
				p.add(name, "--"+f.Name, h)
			}
		case known:
			p.add(f.Value, "--"+f.Name, h)
		case strings.HasPrefix(f.Value, "/"):
			p.add(f.Value, "--"+f.Name, home{in: inFiles}) // an unknown flag: it may be a secret
		}
	}
	slices.SortFunc(p.files, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	p.checkFolders()
}

// add reads a file, unless it has been read.
func (p *planner) add(name, by string, h home) {
	if !path.IsAbs(name) {
		p.refuse(by+"="+name, "give the whole path", "it is not an absolute path")
		return
	}
	name = path.Clean(name)
	if p.file(name) != nil {
		return
	}
	local, ok := p.local(name, by)
	if !ok {
		return
	}
	text, err := os.ReadFile(local)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.refuse(by+"="+name, "put it there, or name the folder that has the host's files with --root or --pki",
			"there is no file %s", local)
		return
	case err != nil:
		p.refuse(by+"="+name, "make it readable, or run this as root", "%v", err)
		return
	case len(text) == 0:
		p.refuse(by+"="+name, "give the file its content", "%s is empty", local)
		return
	}
	f := &file{path: name, by: by, text: text, in: h.in, key: h.key}
	if f.key == "" {
		f.key = invalidKey.ReplaceAllString(path.Base(name), "-")
	}
	for i := 2; p.taken(f.in, f.key); i++ {
		f.key = fmt.Sprintf("%d-%s", i, strings.TrimPrefix(f.key, fmt.Sprintf("%d-", i-1)))
	}
	p.files = append(p.files, f)
	if h.names != nil {
		h.names(p, f)
	}
}

// invalidKey matches characters that are not allowed in a key of a Secret.
var invalidKey = regexp.MustCompile(`[^-._a-zA-Z0-9]`)

func (p *Plan) file(name string) *file {
	if i := slices.IndexFunc(p.files, func(f *file) bool { return f.path == path.Clean(name) }); i >= 0 {
		return p.files[i]
	}
	return nil
}

func (p *Plan) taken(in, key string) bool {
	return slices.ContainsFunc(p.files, func(f *file) bool { return f.in == in && f.key == key })
}

// local returns the path from which a file of the container is read.
func (p *planner) local(name, by string) (string, bool) {
	host := name
	if m, rest, ok := p.mountOf(name); ok {
		if m.host == "" {
			p.refuse(by+"="+name, "mount it from the host", "it is in volume %s, which is not on the host", m.volume)
			return "", false
		}
		host = path.Join(m.host, rest)
	}
	if rest, ok := below("/etc/kubernetes/pki", host); ok && p.o.PKI != "" {
		return filepath.Join(p.o.PKI, filepath.FromSlash(rest)), true
	}
	root := p.o.Root
	if root == "" {
		root = "/"
	}
	return filepath.Join(root, filepath.FromSlash(host)), true
}

// system are folders that a volume cannot replace, because the image or the kubelet has files in them.
var system = []string{
	"/", "/bin", "/dev", "/etc", "/etc/ssl", "/etc/ssl/certs", "/home", "/lib", "/opt", "/proc", "/root", "/run", "/sbin",
	"/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin", "/usr/share", "/var", "/var/lib",
	"/var/run",
}

func (p *planner) checkFolders() {
	for _, f := range p.files {
		if dir := path.Dir(f.path); slices.Contains(system, dir) {
			p.refuse(f.by+"="+f.path, "move it to a separate folder, such as /etc/kubernetes/pki, and name it there",
				"a volume at %s would hide the image's files there", dir)
		}
	}
}

// folders returns where volumes are mounted: the folders of all files, except folders inside others.
func (p *Plan) folders() []string {
	var out []string
	for _, f := range p.files { // sorted by path, so an outer folder may come later
		dir := path.Dir(f.path)
		if slices.ContainsFunc(out, func(o string) bool { _, in := below(o, dir); return in }) {
			continue
		}
		out = slices.DeleteFunc(out, func(o string) bool { _, in := below(dir, o); return in })
		out = append(out, dir)
	}
	slices.Sort(out)
	return out
}

// maxBytes is the size limit of a Secret or a ConfigMap.
const maxBytes = 1 << 20

func (p *planner) checkSizes() {
	sizes := map[string]int{}
	for _, f := range p.files {
		sizes[f.in] += len(f.text)
		if sizes[f.in] > maxBytes {
			p.refuse(f.by+"="+f.path, "make it smaller", "with it, %s-%s is larger than 1 MiB, which no object can be",
				p.o.Name, f.in)
			return
		}
	}
}

package deployment

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/deployment/hosttest"
	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

// files returns what is written, by path.
func files(t testing.TB, text string, o Options) map[string]string {
	t.Helper()
	p, err := New([]byte(text), o)
	require.NoError(t, err)
	list, err := p.Files()
	require.NoError(t, err)
	out := map[string]string{}
	for _, f := range list {
		if !Written(f.Text) {
			t.Errorf("%s is not recognized as written by the command", f.Path)
		}
		out[f.Path] = string(f.Text)
	}
	return out
}

// TestGolden: what is made of a manifest as kubeadm writes it. Keys and digests differ in each run.
func TestGolden(t *testing.T) {
	h := hosttest.New(t)
	got := files(t, manifest(t), options(h))
	const dir = "testdata/kubeadm"
	if golden.Updating() {
		require.NoError(t, os.RemoveAll(dir))
	}
	var names []string
	for name, text := range got {
		names = append(names, name)
		text = hideSecrets(t, text)
		golden.File(t, filepath.Join(dir, strings.Replace(name, ".gitignore", "gitignore", 1)), text)
		if !strings.HasPrefix(name, Secrets+"/") && strings.Contains(text, "PRIVATE KEY") {
			t.Errorf("%s has a key", name)
		}
	}
	slices.Sort(names)
	want := []string{
		"manifests/autoscaler.yaml", "manifests/config.yaml", "manifests/deployment.yaml", "manifests/disruptionbudget.yaml",
		"manifests/service.yaml", "secrets/.gitignore", "secrets/secrets.yaml",
	}
	require.Equal(t, "names", want, names)
}

// hideSecrets replaces what differs in each run by its length's kind.
func hideSecrets(t *testing.T, text string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	data := false
	for i, line := range lines {
		key, value, ok := strings.Cut(line, ": ")
		switch {
		case line == "data:":
			data = true
		case !strings.HasPrefix(line, "  "):
			data = false
		case strings.HasSuffix(key, "rota.dev/files-sha256"), ok && data && len(value) > 100:
			lines[i] = key + ": (differs)"
		}
	}
	return strings.Join(lines, "\n")
}

// TestSecretsHoldTheFiles: each file is in its Secret, byte by byte, and is mounted where the flags say.
func TestSecretsHoldTheFiles(t *testing.T) {
	h := hosttest.New(t)
	got := files(t, manifest(t), options(h))
	d := decode[appsv1.Deployment](t, got["manifests/deployment.yaml"])[0]
	mounted := mountedFiles(t, d, got)
	for _, name := range []string{
		"ca.crt", "encryption.yaml", "etcd/ca.crt", "apiserver-etcd-client.crt", "apiserver-etcd-client.key",
		"apiserver-kubelet-client.crt", "apiserver-kubelet-client.key", "front-proxy-client.crt", "front-proxy-client.key",
		"front-proxy-ca.crt", "sa.pub", "sa.key", "apiserver.crt", "apiserver.key",
	} {
		if mounted[pki+name] != h.Read(pki+name) {
			t.Errorf("%s is mounted as %q", name, mounted[pki+name])
		}
		delete(mounted, pki+name)
	}
	const policy = "/etc/kubernetes/policies/audit.yaml"
	if mounted[policy] != h.Read("/srv/policies/audit.yaml") {
		t.Errorf("the audit policy is mounted as %q", mounted[policy])
	}
	delete(mounted, policy)
	if len(mounted) > 0 {
		t.Errorf("more is mounted: %v", mounted)
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s is on the host", v.Name)
		}
	}
}

// mountedFiles does what the kubelet does with projected volumes.
func mountedFiles(t testing.TB, d appsv1.Deployment, files map[string]string) map[string]string {
	t.Helper()
	secrets := map[string]corev1.Secret{}
	for _, s := range decode[corev1.Secret](t, files["secrets/secrets.yaml"]) {
		secrets[s.Name] = s
	}
	var config corev1.ConfigMap
	if text := files["manifests/config.yaml"]; text != "" {
		config = decode[corev1.ConfigMap](t, text)[0]
	}
	out := map[string]string{}
	spec := d.Spec.Template.Spec
	for _, m := range spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 || spec.Volumes[i].Projected == nil {
			t.Fatalf("no projected volume %s", m.Name)
		}
		for _, source := range spec.Volumes[i].Projected.Sources {
			if s := source.Secret; s != nil {
				for _, item := range s.Items {
					out[filepath.Join(m.MountPath, item.Path)] = string(secrets[s.Name].Data[item.Key])
				}
			} else {
				for _, item := range source.ConfigMap.Items {
					out[filepath.Join(m.MountPath, item.Path)] = config.Data[item.Key]
				}
			}
		}
	}
	return out
}

// decode reads the documents of a file.
func decode[T any](t testing.TB, text string) []T {
	t.Helper()
	var out []T
	for doc := range strings.SplitSeq(text, "\n---\n") {
		var v T
		require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &v))
		out = append(out, v)
	}
	return out
}

// TestOptions: what the options change.
func TestOptions(t *testing.T) {
	h := hosttest.New(t)
	o := options(h)
	o.Namespace, o.Name = "api", "front"
	o.Set = map[string][]string{"audit-log-path": {"-"}, "shutdown-delay-duration": {"40s"},
		"tls-cert-file": {pki + "other.crt"}, "tls-private-key-file": {pki + "other.key"}}
	o.Unset = []string{"encryption-provider-config"}
	o.Names = []string{"api.example.org", "10.0.0.100"}
	o.JoinKubernetes, o.ReferenceSecrets = true, true
	h.Issue(h.Authority(pki+"ca"), pki+"other", "other", 1, nil)
	_, err := New([]byte(manifest(t)), o)
	if err == nil || !strings.Contains(err.Error(), "kubernetes.default.svc, front.api.svc, api.example.org, 10.0.0.100") {
		t.Fatalf("%v, want the missing names", err)
	}
	o.Set = map[string][]string{"shutdown-delay-duration": {"40s"}}
	o.Name, o.Names, o.Namespace = "kube-apiserver", nil, "kube-system"
	got := files(t, manifest(t), o)
	if _, ok := got["secrets/secrets.yaml"]; ok {
		t.Error("Secrets are written that somebody else makes")
	}
	pod := decode[appsv1.Deployment](t, got["manifests/deployment.yaml"])[0].Spec.Template.Spec
	command := strings.Join(pod.Containers[0].Command, " ")
	for _, want := range []string{
		"--endpoint-reconciler-type=lease", "--advertise-address=$(POD_IP)", "--shutdown-delay-duration=40s",
		"--goaway-chance=0.001", "--shutdown-send-retry-after=true",
	} {
		if !strings.Contains(command, want) {
			t.Errorf("no %s in %s", want, command)
		}
	}
	if strings.Contains(command, "encryption-provider-config") {
		t.Errorf("a flag that is unset is there: %s", command)
	}
	if got := *pod.TerminationGracePeriodSeconds; got != 40+60+15 {
		t.Errorf("a Pod has %d s to end, want the delay, requests and some time", got)
	}
}

// TestSetReplacesAll: what is set takes the place of all values of a flag, and who loses some is told.
func TestSetReplacesAll(t *testing.T) {
	h := hosttest.New(t)
	const key = "    - --service-account-key-file=" + pki
	text := strings.Replace(manifest(t), key+"sa.pub\n", key+"old.pub\n"+key+"sa.pub\n", 1)
	h.AccountKey(pki + "old")
	for _, c := range []struct{ set, gone []string }{
		{[]string{pki + "sa.pub"}, []string{pki + "old.pub"}},
		{[]string{pki + "sa.pub", pki + "old.pub"}, nil},
	} {
		o := options(h)
		o.Set = map[string][]string{"service-account-key-file": c.set}
		p, err := New([]byte(text), o)
		require.NoError(t, err)
		if got := p.line.Values("service-account-key-file"); !slices.Equal(got, c.set) {
			t.Errorf("%q are the key files, want %q", got, c.set)
		}
		said := strings.Contains(strings.Join(p.Notes, "\n"), "These are gone: "+strings.Join(c.gone, " "))
		if said != (c.gone != nil) {
			t.Errorf("%q replace two values, noted: %q", c.set, p.Notes)
		}
	}
}

// TestFilesThatFilesName: files that configuration names go along, those with credentials as Secrets.
func TestFilesThatFilesName(t *testing.T) {
	h := hosttest.New(t)
	const dir = "/etc/kubernetes/policies/"
	text := strings.Replace(manifest(t), lastFlag,
		"    - --admission-control-config-file="+dir+"admission.yaml\n"+
			"    - --authorization-config="+dir+"authz.yaml\n"+
			"    - --audit-webhook-config-file="+dir+"reached.conf\n"+
			"    - --tracing-config-file="+dir+"tracing.yaml\n"+
			"    - --tls-sni-cert-key="+pki+"admin.crt,"+pki+"admin.key:*.example.org\n"+lastFlag, 1)
	for name, text := range map[string]string{
		"admission.yaml":    "plugins: [{name: ImagePolicyWebhook, path: image/policy.yaml}]",
		"image/policy.yaml": "imagePolicy: {kubeConfigFile: /etc/kubernetes/policies/image/hook.conf}",
		"image/hook.conf":   "{apiVersion: v1, kind: Config, users: [{name: u, user: {client-certificate: hook.crt, client-key: hook.key}}]}",
		"image/hook.crt":    "a certificate",
		"image/hook.key":    "a key",
		"authz.yaml":        "authorizers: [{type: Webhook, name: w, webhook: {connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/kubernetes/policies/hook.conf}}}]",
		"hook.conf":         "{apiVersion: v1, kind: Config, users: [{name: u, user: {token: secret}}]}",
		"reached.conf":      kubeconfigTo("https://hooks.example:8443"),
		"tracing.yaml":      "{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: 'collector.example:4317'}",
	} {
		h.Write("/srv/policies/"+name, text)
	}
	got := files(t, text, options(h))
	d := decode[appsv1.Deployment](t, got["manifests/deployment.yaml"])[0]
	mounted := mountedFiles(t, d, got)
	for _, name := range []string{
		"audit.yaml", "admission.yaml", "authz.yaml", "hook.conf", "image/policy.yaml", "image/hook.conf", "image/hook.crt",
		"image/hook.key", "reached.conf", "tracing.yaml",
	} {
		if mounted[dir+name] != h.Read("/srv/policies/"+name) {
			t.Errorf("%s is mounted as %q", name, mounted[dir+name])
		}
	}
	for _, name := range []string{"admin.crt", "admin.key"} {
		if mounted[pki+name] != h.Read(pki+name) {
			t.Errorf("%s of --tls-sni-cert-key is mounted as %q", name, mounted[pki+name])
		}
	}
	if config := got["manifests/config.yaml"]; strings.Contains(config, "token: secret") || strings.Contains(config, "a key") {
		t.Errorf("credentials are in a ConfigMap:\n%s", config)
	}
}

// TestNotes: what works, but should be known.
func TestNotes(t *testing.T) {
	h := hosttest.New(t)
	text := strings.NewReplacer("kube-apiserver:v1.36.3", "kube-apiserver@sha256:0123", "https://10.0.0.21", "http://10.0.0.21",
		"    - --allow-privileged=true", "    - --bind-address=10.0.0.11").Replace(manifest(t))
	o := options(h)
	o.Now = h.Now.AddDate(1, 0, -10)
	p, err := New([]byte(text), o)
	require.NoError(t, err)
	notes := strings.Join(p.Notes, "\n")
	for _, want := range []string{
		"does not say its version", "--etcd-servers=http://10.0.0.21:2379: etcd is used without TLS", "--bind-address=10.0.0.11 is left out",
		pki + "apiserver.crt expires on", "(/etc/ssl/certs, /etc/ca-certificates) stay there",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("no %q in the notes:\n%s", want, notes)
		}
	}
}

// TestNameOfTheFront: who has to give rota front another name is told, and nobody else.
func TestNameOfTheFront(t *testing.T) {
	h := hosttest.New(t)
	for name, noted := range map[string]bool{"kubernetes": false, "api.example.org": true} {
		h.Issue(h.Authority(pki+"ca"), pki+"apiserver", "x", x509.ExtKeyUsageServerAuth, func(c *x509.Certificate) {
			c.DNSNames = []string{name, "kubernetes.default.svc", "kube-apiserver.kube-system.svc"}
		})
		p, err := New([]byte(manifest(t)), options(h))
		require.NoError(t, err)
		if got := strings.Contains(strings.Join(p.Notes, "\n"), `does not hold the name "kubernetes"`); got != noted {
			t.Errorf("with the name %s: %q", name, p.Notes)
		}
	}
}

// TestIntermediates: a client certificate of an intermediate authority is taken with that authority's certificate in its
// file, and refused without.
func TestIntermediates(t *testing.T) {
	h := hosttest.New(t)
	root := h.Authority(pki + "front-proxy-ca")
	between := h.Intermediate(root, pki+"between")
	h.Issue(between, pki+"front-proxy-client", "front-proxy-client", x509.ExtKeyUsageClientAuth, nil)
	if _, err := New([]byte(manifest(t)), options(h)); err == nil || !strings.Contains(err.Error(), "not signed by") {
		t.Errorf("without the intermediate authority: %v", err)
	}
	h.Write(pki+"front-proxy-client.crt", h.Read(pki+"front-proxy-client.crt")+h.Read(pki+"between.crt"))
	if _, err := New([]byte(manifest(t)), options(h)); err != nil {
		t.Errorf("with it: %v", err)
	}
}

// TestNamespaceFirst: kubectl takes the files of a folder by name, and a namespace has to be there first.
func TestNamespaceFirst(t *testing.T) {
	p := &Plan{o: Options{Name: "front", Namespace: "api"}}
	all, err := p.Files()
	require.NoError(t, err)
	for _, f := range all {
		if f.Path < namespaceFile && strings.HasPrefix(f.Path, "manifests/") || all[0].Path != namespaceFile {
			t.Errorf("%s comes before %s", f.Path, namespaceFile)
		}
	}
}

// TestPodFields: names for the static Pod's own use go along, and what does not is told.
func TestPodFields(t *testing.T) {
	h := hosttest.New(t)
	text := strings.Replace(manifest(t), "\nspec:\n", "\nspec:\n  hostAliases: [{ip: 10.0.0.9, hostnames: [etcd.example]}]\n"+
		"  dnsConfig: {nameservers: [10.0.0.53]}\n  runtimeClassName: special\n", 1)
	p, err := New([]byte(text), options(h))
	require.NoError(t, err)
	spec := p.deployment().Spec.Template.Spec
	if len(spec.HostAliases) != 1 || spec.DNSConfig == nil || !strings.Contains(strings.Join(p.Notes, "\n"), "runtimeClassName") {
		t.Errorf("%+v, %+v, %q", spec.HostAliases, spec.DNSConfig, p.Notes)
	}
}

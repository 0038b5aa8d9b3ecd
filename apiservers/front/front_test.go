package front

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

func TestValidate(t *testing.T) {
	require.NoError(t, example().Validate())
	for want, spoil := range map[string]func(*Front){
		`proxy "nginx"`:                    func(f *Front) { f.Proxy = "nginx" },
		"name at least one":                func(f *Front) { f.Static = nil },
		"10.0.0.1:6443: named twice":       func(f *Front) { f.Static = []string{"10.0.0.1:6443", "10.0.0.1:6443"} },
		"127.0.0.1:7443: the front itself": func(f *Front) { f.Static = append(f.Static, "127.0.0.1:7443") },
		"127.0.0.1:443: the front itself":  func(f *Front) { f.Listen, f.Static = "0.0.0.0:443", []string{"127.0.0.1:443"} },
		"0.0.0.0:6443: an address to li":   func(f *Front) { f.Static = []string{"0.0.0.0:6443"} },
		`"api.example:6443": must be IP`:   func(f *Front) { f.Static = []string{"api.example:6443"} },
		`"10.0.0.1": must be IP:PORT`:      func(f *Front) { f.Static = []string{"10.0.0.1"} },
		`"10.0.0.1:65536": must be`:        func(f *Front) { f.Static = []string{"10.0.0.1:65536"} },
		`"10.0.0.1:0": port 0`:             func(f *Front) { f.Static = []string{"10.0.0.1:0"} },
		"address to listen on":             func(f *Front) { f.Listen = ":7443" },
		"clients connect there":            func(f *Front) { f.Admin = f.Listen },
		"must be NAMESPACE/NAME":           func(f *Front) { f.Service = "apiserver" },
		"port name":                        func(f *Front) { f.PortName = "" },
		"server name":                      func(f *Front) { f.ServerName = "a b" },
		`name "10.0.0.1": must be a DNS`:   func(f *Front) { f.ServerName = "10.0.0.1" },
		"certificate authorities":          func(f *Front) { f.CA = "ca.crt" },
		"client certificate":               func(f *Front) { f.Client = "/a\nb" },
		"folder of sockets":                func(f *Front) { f.RunDir = "/run/../x" },
		"max connections 0":                func(f *Front) { f.MaxConnections = 0 },
		"interval 1ms":                     func(f *Front) { f.Interval.Duration = time.Millisecond },
		"timeout 800ms":                    func(f *Front) { f.Timeout.Duration = 800 * time.Millisecond },
		"timeout 2m":                       func(f *Front) { f.Timeout.Duration = 2 * time.Minute },
		"answer timeout 0s":                func(f *Front) { f.AnswerTimeout.Duration = 0 },
		"slow start -1s":                   func(f *Front) { f.SlowStart.Duration = -time.Second },
		"idle timeout 1s":                  func(f *Front) { f.IdleTimeout.Duration = time.Second },
	} {
		f := example()
		spoil(f)
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q, got %v", want, err)
		}
		if _, err := f.Files(FormFiles, DefaultPrograms(HAProxy), nil); err == nil {
			t.Errorf("%s: there are files", want)
		}
	}
}

func TestParseFront(t *testing.T) {
	f := example()
	text, err := f.YAML()
	require.NoError(t, err)
	again, err := ParseFront("x", text)
	require.NoError(t, err)
	require.Equal(t, "read again", f, again)
	for name, bad := range map[string]string{
		"no YAML": "{", "a Pod": "apiVersion: v1\nkind: Pod\n", "nothing": "", "a list": "- a\n",
		"no static": strings.Replace(string(text), "static:", "statics:", 1),
		"a number":  strings.Replace(string(text), "interval: 700ms", "interval: 7", 1),
	} {
		if _, err := ParseFront("there.yaml", []byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "there.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAdmit(t *testing.T) {
	f := example()
	f.Listen = "0.0.0.0:6443"
	got, refused := f.Admit([]Server{
		{Address: "10.0.0.9:6443"},
		{Address: "10.0.0.2:6443", Draining: true},
		{Address: "192.168.0.11:6443"}, // static
		{Address: "10.0.0.1:6443"},     // the host's own
		{Address: "127.0.0.1:6443"},
		{Address: "10.0.0.1:6444"},
		{Address: "10.0.0.2:6443"}, // again, and not draining
		{Address: "0.0.0.0:1"},
		{Address: "[::ffff:10.0.0.9]:6443", Draining: true}, // again
		{Address: "somewhere:1"},
	}, []netip.Addr{netip.MustParseAddr("10.0.0.1")})
	want := []Server{{Address: "10.0.0.1:6444"}, {Address: "10.0.0.2:6443"}, {Address: "10.0.0.9:6443"}}
	require.Equal(t, "the front", want, got)
	var reasons []string
	for _, err := range refused {
		reasons = append(reasons, err.Error())
	}
	all := strings.Join(reasons, "\n")
	if len(refused) != 5 || strings.Count(all, "the front itself") != 2 || !strings.Contains(all, "a static server") {
		t.Errorf("refused:\n%s", all)
	}
}

func TestCircle(t *testing.T) {
	local := []netip.Addr{netip.MustParseAddr("192.168.0.12")}
	for listen, circle := range map[string]bool{
		"0.0.0.0:6443": true, "[::]:6443": true, "192.168.0.12:6443": true, "0.0.0.0:7443": false, "127.0.0.1:6443": false,
	} {
		f := example()
		f.Listen = listen
		if err := f.Circle(local); (err != nil) != circle {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// programs are the default ones, and the agent's image.
func programs(proxy string) Programs {
	p := DefaultPrograms(proxy)
	p.AgentImage = "registry.example/rota:v1"
	return p
}

// TestFiles compares all files with those in testdata, and has systemd read its own.
func TestFiles(t *testing.T) {
	f := example()
	f.Client = "/etc/rota-front-client/front.pem"
	e := *f
	e.Proxy, e.Listen = Envoy, "[::]:7443"
	for _, c := range []struct {
		dir  string
		f    *Front
		form string
	}{{"pod", f, FormStaticPod}, {"systemd", f, FormSystemd}, {"envoy-pod", &e, FormStaticPod}, {"envoy-systemd", &e, FormSystemd}} {
		files, err := c.f.Files(c.form, programs(c.f.Proxy), someServers)
		require.NoError(t, err)
		for _, file := range files {
			golden.File(t, filepath.Join("testdata", c.dir, file.Path), string(file.Text))
			if !Written(file.Text) {
				t.Errorf("%s is not recognized", file.Path)
			}
		}
	}
	if Written([]byte("global\n")) {
		t.Error("somebody's own file is recognized")
	}
	for want, spoil := range map[string]func(*Front, *Programs) string{
		"form":          func(*Front, *Programs) string { return "docker" },
		"--agent-image": func(_ *Front, p *Programs) string { p.AgentImage = ""; return FormStaticPod },
		"has keys of others": func(f *Front, _ *Programs) string {
			f.Client = "/etc/kubernetes/pki/front.pem"
			return FormStaticPod
		},
		"see what is below /root": func(_ *Front, p *Programs) string { p.Kubeconfig = "/root/.kube/config"; return FormSystemd },
		"see what is below /tmp":  func(f *Front, _ *Programs) string { f.Dir = "/tmp"; return FormSystemd },
		"cannot be /":             func(f *Front, _ *Programs) string { f.CA = "/ca.crt"; return FormStaticPod },
		"image":                   func(_ *Front, p *Programs) string { p.Image = "a b"; return FormStaticPod },
		"agent's program":         func(_ *Front, p *Programs) string { p.AgentBinary = ""; return FormSystemd },
		"kubeconfig":              func(_ *Front, p *Programs) string { p.Kubeconfig = "a"; return FormSystemd },
		"right below":             func(f *Front, _ *Programs) string { f.RunDir = "/var/run/front"; return FormSystemd },
	} {
		f, p := example(), programs(HAProxy)
		form := spoil(f, &p)
		if _, err := f.Files(form, p, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// TestFilesOfOwnPaths: privileged ports, own credentials, and folders in one another.
func TestFilesOfOwnPaths(t *testing.T) {
	text := func(change func(*Front, *Programs)) (all map[string]string) {
		t.Helper()
		f, p := example(), programs(HAProxy)
		change(f, &p)
		files, err := f.Files(FormStaticPod, p, nil)
		require.NoError(t, err)
		all = map[string]string{}
		for _, file := range files {
			all[file.Path] = string(file.Text)
		}
		return all
	}
	const pod = "rota-front.pod.yaml"
	plain := text(func(*Front, *Programs) {})
	if strings.Contains(plain[pod], "NET_BIND") || plain["rbac.yaml"] == "" {
		t.Error(plain)
	}
	// Nothing of the cluster's keys is in the Pod: of the shared folders two files are.
	for _, folder := range []string{"/etc/kubernetes", "/etc/kubernetes/pki"} {
		if strings.Contains(plain[pod], "ath: "+folder+"\n") {
			t.Errorf("%s is mounted: %s", folder, plain[pod])
		}
	}
	if strings.Count(plain[pod], "type: File\n") != 2 {
		t.Error(plain[pod])
	}
	low := text(func(f *Front, _ *Programs) { f.Listen = "10.0.0.1:443" })
	if strings.Count(low[pod], "add: [NET_BIND_SERVICE]") != 1 {
		t.Error(low[pod])
	}
	own := text(func(f *Front, p *Programs) {
		f.CA, f.Client, p.Kubeconfig = f.Dir+"/ca.crt", f.Dir+"/more/client.pem", "/etc/agent/config"
	})
	if own["rbac.yaml"] != "" || strings.Contains(own[pod], "kubelet-pki") || strings.Contains(own[pod], "name: ca") ||
		strings.Count(own[pod], "path: /etc/agent\n") != 1 {
		t.Error(own)
	}
	same := text(func(f *Front, _ *Programs) { f.Client = "/var/lib/kubelet/pki/kubelet-client-current.pem" })
	if n := strings.Count(same[pod], "mountPath: /var/lib/kubelet/pki\n"); n != 2 { // of the proxy, and of the agent
		t.Errorf("mounted %d times: %s", n, same[pod])
	}
}

// TestSystemd has systemd read the units, with programs that are here.
func TestSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd is not installed")
	}
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, proxy := range []string{HAProxy, Envoy} {
		f, p := example(), DefaultPrograms(proxy)
		f.Proxy, p.Binary, p.AgentBinary = proxy, "/bin/true", "/bin/true"
		files, err := f.Files(FormSystemd, p, nil)
		require.NoError(t, err)
		for _, file := range files {
			if filepath.Ext(file.Path) != ".service" {
				continue
			}
			unit := filepath.Join(dir, proxy+"-"+file.Path)
			require.NoError(t, os.WriteFile(unit, file.Text, 0o600))
			args = append(args, unit)
		}
	}
	if len(args) != 2+4 {
		t.Fatalf("%q, want two units for each proxy", args)
	}
	cmd := exec.CommandContext(t.Context(), analyze, args...)
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v: %s", err, out)
	}
}

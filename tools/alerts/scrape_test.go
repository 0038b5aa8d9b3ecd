package alerts

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	sites = "/apis/web.example.com/v1/namespaces/default/websites/"
	// operator and tier are the rotas, as Prometheus knows them.
	operator, tier = `rota="default/website"`, `rota="default/tier"`
)

// TestPrometheus: a Prometheus server scrapes replicas of the example operator, and dispatchers, while replicas join,
// crash and leave. Every panel of the dashboard shows something. Every metric that the dashboard or a rule names moves,
// here or in a scenario of TestAlerts. The rules are evaluated as they are: the one alert that fires is the one that
// should.
func TestPrometheus(t *testing.T) {
	c := startCluster(t, "./examples/website/sharded", "./cmd/rota")
	targets := map[string]string{}
	for _, name := range []string{"web-0", "web-1", "web-2", "tier-0", "tier-1"} {
		targets[name] = freeAddress(t)
	}
	p := startPrometheus(t, targets)
	replica := func(name string) *exec.Cmd {
		return c.run(name, "sharded", "--state-dir", t.TempDir(), "--metrics-bind-address", targets[name],
			"--health-probe-bind-address", "127.0.0.1:0", "--rota-leader-election-id", "website")
	}
	c.define()
	replica("web-0")
	crashes := replica("web-1")
	d := c.dispatchers(targets)
	d.start("tier-0", "15s")
	p.until(`sum(rota_slots{` + operator + `,state="open"}) == 256 and count(rota_slots{` + operator +
		`,state="open"} == 128) == 2`)
	for n := range 60 {
		name := fmt.Sprintf("site-%d", n)
		c.apply(sites+name, "apiVersion: web.example.com/v1\nkind: Website\nmetadata: {name: "+name+"}\n"+
			"spec: {title: Hello}\n")
	}
	p.until(`sum(rota_objects{` + operator + `,kind="Website.web.example.com"}) == 60`)
	p.until(`sum(rota_slots{` + tier + `,state="open"}) == 256`)
	d.work(p)

	leaves := replica("web-2")
	p.until(`count(rota_slots{` + operator + `,state="open"} > 0) == 3`)
	if err := crashes.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.until(`max(rota_members{` + operator + `}) == 2 and sum(rota_slots{` + operator + `,state="open"}) == 256`)
	if err := leaves.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.until(`max(rota_slots{` + operator + `,state="open"}) == 256`)
	p.until(`sum(rota_coverage_findings{` + operator + `}) == 0`)
	if firing := p.firing(); len(firing) > 0 {
		t.Errorf("alerts fire, although all is well: %v", firing)
	}

	d.start("tier-1", "5s") // it does not join: the other one would not know when it ends
	p.until(`ALERTS{alertname="RotaMembersDiffer",alertstate="firing"}`)
	if firing := p.firing(); !slices.Equal(firing, []string{"RotaMembersDiffer default/tier"}) {
		t.Errorf("these alerts fire: %v", firing)
	}
	p.healthy()
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			shows := false
			for _, rota := range []string{"default/website", "default/tier"} {
				shows = shows || len(p.over(filled(target.Expr, rota))) > 0
			}
			if !shows {
				t.Errorf("panel %q shows nothing: %s", panel.Title, target.Expr)
			}
		}
	}
	moved := movedInScenarios(t)
	for _, name := range named(t) {
		series := p.over(name)
		if len(series) == 0 {
			t.Errorf("nobody has %s", name)
		}
		for _, s := range series {
			for _, sample := range s.Floats {
				if sample.F != s.Floats[0].F {
					moved[name] = true
				}
			}
		}
		if !moved[name] {
			t.Errorf("%s never changes", name)
		}
	}
}

// movedInScenarios returns the metrics that change in a scenario.
func movedInScenarios(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(scenarioDir(t), "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			name, rest, labelled := strings.Cut(strings.TrimSpace(line), "{")
			if !labelled {
				continue
			}
			values := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
			values = slices.DeleteFunc(values, func(v string) bool { return v == "_" })
			if len(slices.Compact(values)) > 1 {
				out[name] = true
			}
		}
	}
	return out
}

// define makes the kind Website known.
func (c *cluster) define() {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "examples/website/config/crd/web.example.com_websites.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	const name = "websites.web.example.com"
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name
	c.apply(path, string(text))
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); !established(c.send(http.MethodGet, path, "", "")); <-tick.C {
		if time.Since(begun) > patience {
			c.t.Fatalf("%s is not established after %v", name, patience)
		}
	}
}

func established(crd []byte) bool {
	var object struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if json.Unmarshal(crd, &object) != nil {
		return false
	}
	for _, condition := range object.Status.Conditions {
		if condition.Type == "Established" && condition.Status == "True" {
			return true
		}
	}
	return false
}

// dispatchers hand out ConfigMaps, and work as the same ServiceAccount as their workers.
type dispatchers struct {
	*cluster
	token   string
	url     string
	targets map[string]string
}

func (c *cluster) dispatchers(targets map[string]string) *dispatchers {
	c.t.Helper()
	c.apply("/api/v1/namespaces/default/serviceaccounts/tier",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: tier}\n")
	c.apply("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tier", `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: tier, namespace: default}]
`)
	d := &dispatchers{cluster: c, targets: targets}
	d.token = d.tokenFor(`"rota.dev/dispatch"`)
	config, err := os.ReadFile(c.kubeconfig)
	if err != nil {
		c.t.Fatal(err)
	}
	own := *c // with the account's token instead of a certificate
	own.kubeconfig = filepath.Join(c.dir, "tier.kubeconfig")
	lines := slices.DeleteFunc(strings.Split(string(config), "\n"), func(line string) bool {
		return strings.Contains(line, "client-certificate-data:")
	})
	for i, line := range lines {
		if at := strings.Index(line, "client-key-data:"); at >= 0 {
			lines[i] = line[:at] + "token: " + d.tokenFor("")
		}
	}
	d.cluster = &own
	d.write("tier.kubeconfig", strings.Join(lines, "\n"))
	d.write("token", d.token)
	return d
}

// tokenFor returns a token of the account for an audience; none: the API server.
func (d *dispatchers) tokenFor(audience string) string {
	d.t.Helper()
	var answer struct{ Status struct{ Token string } }
	text := d.send(http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/tier/token", "application/json",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":[`+audience+`]}}`)
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status.Token == "" {
		d.t.Fatalf("no token: %v %s", err, text)
	}
	return answer.Status.Token
}

func (d *dispatchers) write(file, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, file), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dispatchers) start(name, lease string) {
	d.t.Helper()
	address := freeAddress(d.t)
	if d.url == "" {
		d.url = "http://" + address
	}
	d.write(name+".yaml", fmt.Sprintf(`
name: tier
kinds: [{kind: ConfigMap, selector: "app"}]
leaseDuration: %s
tokenFile: %s
metrics: %s
server: {listen: %q, advertise: "http://%s", insecure: true}
`, lease, filepath.Join(d.dir, "token"), d.targets[name], address, address))
	d.run(name, "rota", "dispatch", "--config", filepath.Join(d.dir, name+".yaml"))
}

// work does what workers do: a key is done at the first try, one at the second, and one is never heard of again. And
// somebody asks who may not.
func (d *dispatchers) work(p *server) {
	d.t.Helper()
	for n := range 3 {
		name := fmt.Sprintf("job-%d", n)
		d.apply("/api/v1/namespaces/default/configmaps/"+name,
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", labels: {app: test}}\n")
	}
	p.until(`rota_dispatch_ready{` + tier + `} == 3`)
	ask := func(token, path, body string) ([]byte, int) {
		return send(d.t, http.DefaultClient, http.MethodPost, d.url+path,
			map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json"}, body)
	}
	if answer, code := ask("stranger", "/v1/take", `{"worker":"w"}`); code != http.StatusUnauthorized {
		d.t.Errorf("a stranger is answered %d %s", code, answer)
	}
	result := []string{`{"token":%q,"result":"retry","afterSeconds":5}`, `{"token":%q,"result":"ok"}`, ""}
	for n := range 3 {
		answer, code := ask(d.token, "/v1/take", `{"worker":"w","lengthSeconds":5}`)
		var got struct{ Takes []struct{ Token string } }
		if err := json.Unmarshal(answer, &got); err != nil || code != http.StatusOK || len(got.Takes) != 1 {
			d.t.Fatalf("take: %d %s", code, answer)
		}
		p.until(`rota_dispatch_taken{` + tier + `} >= 1`)
		if result[n] == "" {
			continue
		}
		if answer, code := ask(d.token, "/v1/done", fmt.Sprintf(result[n], got.Takes[0].Token)); code >= 300 {
			d.t.Fatalf("done: %d %s", code, answer)
		}
	}
	p.until(`rota_dispatch_takes_ended_total{` + tier + `,how="expired"} == 1`)
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	out, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

package app

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// valid is a configuration to which tests add something.
const valid = `
name: website
kinds: [{kind: Website.web.example.com}]
tokenFile: /token
server: {tls: {certFile: a, keyFile: b}}
`

func TestDefaults(t *testing.T) {
	c, err := Parse([]byte(valid))
	if err == nil {
		err = c.Check()
	}
	require.NoError(t, err)
	want := &Config{
		Name: "website", Kinds: []Kind{{Kind: "Website.web.example.com"}}, TokenFile: "/token",
		Server:   Server{Listen: ":8443", TLS: TLS{CertFile: "a", KeyFile: "b"}},
		Audience: "rota.dev/dispatch", Metrics: ":8080", LeaveTimeout: Duration(75 * time.Second),
	}
	require.Equal(t, "the config", want, c)
}

// Every field arrives where it belongs.
func TestAllFields(t *testing.T) {
	c, err := Parse([]byte(`
name: website
namespace: operators
kinds:
- {kind: ConfigMap, namespaces: [a, b], selector: "app in (x, y)"}
- {kind: Deployment.apps, owns: [ReplicaSet.apps, Pod]}
delivery: filter
slots: 512
rememberNames: true
resync: 9h
key: Namespace
leaseDuration: 16s
renewDeadline: 11s
retryPeriod: 2100ms
writeTimeout: 3s
fenceDelay: 4s
leaveTimeout: 50s
takes: {length: 31s, minLength: 2s, maxLength: 11m, baseDelay: 6ms, maxDelay: 17m, patience: 3s, drainLimit: 90s}
server:
  listen: 127.0.0.1:9443
  advertise: https://10.0.0.7:9443
  tls: {certFile: a, keyFile: b, caFile: c, serverName: website.operators.svc}
audience: example.com/dispatch
tokenFile: /token
limits: {rate: 12.5, burst: 13, underWay: 14, total: 15, reviews: 16, connections: 17}
metrics: :9090
`))
	if err == nil {
		err = c.Check()
	}
	require.NoError(t, err)
	q, o, l := c.queue(), c.rota(), c.limits()
	for _, f := range []struct{ name, got, want string }{
		{"takes", time.Duration.String(q.Length) + q.MinLength.String() + q.MaxLength.String() + q.BaseDelay.String() +
			q.MaxDelay.String() + q.Patience.String() + q.DrainLimit.String(), "31s2s11m0s6ms17m0s3s1m30s"},
		{"lease", o.LeaseDuration.String() + o.RenewDeadline.String() + o.RetryPeriod.String() + o.WriteTimeout.String() +
			o.FenceDelay.String() + o.LeaveTimeout.String(), "16s11s2.1s3s4s50s"},
		{"names", o.Namespace + "/" + o.Name, "operators/website"},
		{"key", o.Key.String(), "Namespace"},
	} {
		if f.got != f.want {
			t.Errorf("%s: %s, want %s", f.name, f.got, f.want)
		}
	}
	if o.Slots != slot.Count(512) || !c.RememberNames || c.Resync != Duration(9*time.Hour) || l.Rate != 12.5 || l.Burst != 13 || l.UnderWay != 14 || l.Total != 15 || l.Reviews != 16 {
		t.Errorf("%+v, %+v", o, l)
	}
	kinds := c.kinds()
	if len(kinds) != 2 || kinds[0].Kind.String() != "ConfigMap" || kinds[1].Kind.String() != "Deployment.apps" ||
		kinds[0].Selector != "app in (x, y)" || fmt.Sprint(kinds[1].Owns) != "[ReplicaSet.apps Pod]" || strings.Join(kinds[0].Namespaces, " ") != "a b" {
		t.Errorf("%+v", kinds)
	}
}

func TestWrong(t *testing.T) {
	text, err := os.ReadFile("testdata/refused.yaml")
	require.NoError(t, err)
	var cases []struct{ Text, Add, Replace, By, Want string }
	if err := yaml.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err)
	}
	for _, c := range cases {
		switch {
		case c.Replace != "":
			c.Text = strings.Replace(valid, c.Replace, c.By, 1)
		case c.Add != "":
			c.Text = valid + c.Add
		}
		config, err := Parse([]byte(c.Text))
		if err == nil {
			err = config.Check()
		}
		if err == nil || !strings.Contains(err.Error(), c.Want) {
			t.Errorf("%s\nerror %v, want %q", c.Text, err, c.Want)
		}
	}
}

// All that is wrong is told at once.
func TestAllErrors(t *testing.T) {
	err := (&Config{Kinds: []Kind{{Kind: "a", Selector: "!!"}}, Delivery: "x", Key: "y"}).Check()
	require.ErrorSays(t, err, "name", "kinds[0]: kind", "kinds[0]: selector", "delivery", "key", "tokenFile", "server.tls")
}

func TestAdvertised(t *testing.T) {
	for _, c := range []struct {
		server   Server
		ip, want string
	}{
		{Server{Listen: ":1"}, "10.0.0.7", "https://10.0.0.7:2"},
		{Server{Listen: ":1"}, "fd00::7", "https://[fd00::7]:2"},
		{Server{Listen: ":1", Insecure: true}, "10.0.0.7", "http://10.0.0.7:2"},
		{Server{Listen: "127.0.0.1:0"}, "", "https://127.0.0.1:2"},
		{Server{Listen: ":1", Advertise: "https://a:3"}, "10.0.0.7", "https://a:3"},
		{Server{Listen: ":1"}, "", ""},
		{Server{Listen: "0.0.0.0:1"}, "", ""},
		{Server{Listen: "[::]:1"}, "", ""},
	} {
		t.Setenv("POD_IP", c.ip)
		if got, err := c.server.advertised(2); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, error %v, want %q", c.server, got, err, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	file := t.TempDir() + "/config.yaml"
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("no file: error %v", err)
	}
	require.NoError(t, os.WriteFile(file, []byte("a: b"), 0o600))
	if _, err := Load(file); err == nil || !strings.HasPrefix(err.Error(), file+": line 1") {
		t.Errorf("error %v", err)
	}
}

// FuzzParse: no configuration makes the program panic, and what passes the check can be used.
func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte(valid + "takes: {length: 30s}\nlimits: {rate: .inf}\nslots: -1"))
	f.Add([]byte("kinds: [{kind: ''}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text)
		if err != nil || c.Check() != nil {
			return
		}
		require.NoError(t, c.queue().Validate())
		if len(c.kinds()) == 0 {
			t.Error("no kinds")
		}
		if _, err := c.Server.advertised(1); err != nil && c.Server.Advertise != "" {
			t.Error(err)
		}
		if err := c.Check(); err != nil {
			t.Errorf("a second check: %v", err)
		}
	})
}

// TestREADME: the example's table has every field.
func TestREADME(t *testing.T) {
	readme, err := os.ReadFile("../../../examples/dispatch/README.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(readme), "| field | default | meaning |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var has func(of reflect.Type, prefix string)
	has = func(of reflect.Type, prefix string) {
		for i := range of.NumField() {
			f, name := of.Field(i).Type, prefix+of.Field(i).Tag.Get("yaml")
			switch {
			case f.Kind() == reflect.Struct:
				has(f, name+".")
			case f.Kind() == reflect.Slice && f.Elem().Kind() == reflect.Struct:
				has(f.Elem(), name+"[].")
			case !strings.Contains(table, "`"+name+"`"):
				t.Errorf("README.md lacks %s", name)
			}
		}
	}
	has(reflect.TypeFor[Config](), "")
}

package balance

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/apiservers/front"
)

// TestManyServers: HAProxy checks one server many times by a front's own line, and sends clients nowhere else.
func TestManyServers(t *testing.T) {
	f := front.Default()
	f.Static = []string{"10.0.0.1:6443"}
	config, id := string(f.HAProxy(nil, "")), front.StaticID("10.0.0.1:6443")
	for resumed, fresh := range map[bool]int{true: 0, false: 3} {
		got, err := manyServers(config, id, 3, resumed)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(got, " check check-ssl ") != 3 || !strings.Contains(got, "server "+id+"-2 10.0.0.1:6443 ") {
			t.Errorf("want three lines that check %s:\n%s", id, got)
		}
		if n := strings.Count(got, " no-ssl-reuse\n"); n != fresh {
			t.Errorf("%d lines have new sessions, want %d:\n%s", n, fresh, got)
		}
	}
	if got, err := manyServers(config, "other", 3, true); err == nil {
		t.Errorf("a server that is not there is taken:\n%s", got)
	}
}

func TestReadyzRequests(t *testing.T) {
	n, err := readyzRequests([]byte(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="",subresource="/readyz",verb="GET"} 40
apiserver_request_total{code="200",component="",subresource="/readyz",verb="HEAD"} 2
apiserver_request_total{code="500",component="",subresource="/readyz",verb="GET"} 3
apiserver_request_total{code="200",component="",subresource="/livez",verb="GET"} 100
apiserver_request_total{code="200",component="apiserver",resource="pods",verb="LIST"} 1000
`))
	if n != 42 || err != nil {
		t.Errorf("%d, %v, want 42", n, err)
	}
}

func TestCPU(t *testing.T) {
	const line = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 130 20 5 5 20 0 9 0 12345"
	if got, err := cpuOf([]byte(line)); got != 1500*time.Millisecond || err != nil {
		t.Errorf("%v, %v, want 1.5s", got, err)
	}
	for _, bad := range []string{"", "42 (a) S 1", strings.Replace(line, "130", "x", 1)} {
		if got, err := cpuOf([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
	if _, err := cpu(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestChecksRefused(t *testing.T) {
	for _, o := range []ChecksOptions{{}, {Rate: 15, For: time.Second}, {Rate: 10, For: time.Millisecond}} {
		if _, err := Checks(t.Context(), o); err == nil || !strings.Contains(err.Error(), "multiple of 10") {
			t.Errorf("%+v: %v, want a refusal", o, err)
		}
	}
}

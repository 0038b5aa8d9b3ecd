package deployment

import "testing"

// TestHostOf: an address is on loopback however its reader lets it be written, and nothing else is.
func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"https://127.0.0.1:8443/a": "127.0.0.1", "https://[::1]:8443": "::1", "http://localhost": "localhost",
		"127.0.0.1:3128": "127.0.0.1", "127.0.0.1": "127.0.0.1", "127.0.0.1/": "127.0.0.1", "localhost": "localhost",
		"localhost:4317": "localhost", "::1": "::1", "[::1]": "::1", "[::1]:3128": "::1", "user:word@127.0.0.1:3128": "127.0.0.1",
		"dns:///localhost:4317": "localhost", "dns:///localhost": "localhost", "dns:localhost:4317": "localhost",
		"dns:///[::1]:4317": "::1", "dns://10.0.0.10/127.0.0.1:4317": "127.0.0.1",
		":4317": "localhost", "http://:3128": "localhost", "dns:///:4317": "localhost",
	} {
		if got := hostOf(address); got != want || !isLoopback(got) {
			t.Errorf("%s: host %q, loopback %v, want %q on loopback", address, got, isLoopback(got), want)
		}
	}
	for address, want := range map[string]string{
		"": "", "https://10.0.0.9:8443": "10.0.0.9", "10.0.0.9": "10.0.0.9", "collector.traces:4317": "collector.traces",
		"dns:///collector.traces:4317": "collector.traces", "dns://127.0.0.1/collector.traces:4317": "collector.traces",
		"proxy": "proxy", "2001:db8::9": "2001:db8::9", "a b": "",
	} {
		if got := hostOf(address); got != want || isLoopback(got) {
			t.Errorf("%s: host %q, loopback %v, want %q elsewhere", address, got, isLoopback(got), want)
		}
	}
}

func TestAnonymous(t *testing.T) {
	for address, want := range map[string]string{
		"http://user:secret@127.0.0.1:3128": "http://127.0.0.1:3128", "user:se@cret@localhost:3128": "localhost:3128",
		"https://127.0.0.1:6443/a": "https://127.0.0.1:6443/a", "localhost": "localhost",
	} {
		if got := anonymous(address); got != want {
			t.Errorf("%s without its user: %s, want %s", address, got, want)
		}
	}
}

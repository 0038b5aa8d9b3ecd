package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/apiservers/front"
	"github.com/rota-dev/rota/test/require"
)

func slice(kind discoveryv1.AddressType, port string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{AddressType: kind, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("metrics"), Port: ptr.To[int32](1)},
			{Name: ptr.To(port), Port: ptr.To[int32](6443)}}}
}

func at(address string, ready, terminating *bool) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: ready, Terminating: terminating}}
}

func TestServersOf(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	for name, c := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   []front.Server
	}{
		"none": {},
		"several slices": {
			[]*discoveryv1.EndpointSlice{
				slice(discoveryv1.AddressTypeIPv4, "https", at("10.0.0.1", yes, no), at("10.0.0.2", nil, nil)),
				slice(discoveryv1.AddressTypeIPv6, "https", at("fd00::1", yes, nil)),
				slice(discoveryv1.AddressTypeIPv4, "http", at("10.0.0.3", yes, no)),
				slice(discoveryv1.AddressTypeFQDN, "https", at("api.example", yes, no)),
			},
			[]front.Server{{Address: "10.0.0.1:6443"}, {Address: "10.0.0.2:6443"}, {Address: "[fd00::1]:6443"}},
		},
		"some leave": {
			[]*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv4, "https", at("10.0.0.1", yes, no),
				at("10.0.0.2", no, no), at("10.0.0.3", no, yes), at("10.0.0.4", yes, yes))},
			[]front.Server{{Address: "10.0.0.1:6443"}, {Address: "10.0.0.2:6443", Draining: true},
				{Address: "10.0.0.3:6443", Draining: true}, {Address: "10.0.0.4:6443", Draining: true}},
		},
		"after an outage": {
			[]*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv4, "https", at("10.0.0.1", no, no),
				at("10.0.0.2", no, no), at("10.0.0.3", no, yes))},
			[]front.Server{{Address: "10.0.0.1:6443"}, {Address: "10.0.0.2:6443"}, {Address: "10.0.0.3:6443", Draining: true}},
		},
	} {
		require.Equal(t, name, c.want, serversOf(c.slices, "https"))
	}
}

// TestKnown: the list survives, and a file that is none is named and not used.
func TestKnown(t *testing.T) {
	dir := t.TempDir()
	if got, err := readKnown(dir); got != nil || err != nil {
		t.Errorf("at first: %v, %v", got, err)
	}
	want := []front.Server{{Address: "10.0.0.1:6443"}, {Address: "10.0.0.2:6443", Draining: true}}
	for range 2 {
		require.NoError(t, writeKnown(dir, want))
	}
	got, err := readKnown(dir)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	path := filepath.Join(dir, front.ServersFile)
	text, err := os.ReadFile(path)
	if err != nil || !front.Written(text) {
		t.Errorf("%v: %s", err, text)
	}
	for _, bad := range []string{"servers: 3\n", "{", "other: []\n"} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		if got, err := readKnown(dir); got != nil || err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLacking(t *testing.T) {
	v4 := discoveryv1.AddressTypeIPv4
	unnamed := slice(v4, "", discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
	unnamed.Ports = unnamed.Ports[1:]
	for _, c := range []struct {
		name, want string
		slices     []*discoveryv1.EndpointSlice
	}{
		{"none", "no EndpointSlice", nil},
		{"another port", `no port "https", but "metrics", "http"`, []*discoveryv1.EndpointSlice{slice(v4, "http")}},
		{"that port", "", []*discoveryv1.EndpointSlice{slice(v4, "http"), slice(v4, "https")}},
		{"no name", "", []*discoveryv1.EndpointSlice{unnamed}},
		{"no port", "", []*discoveryv1.EndpointSlice{{AddressType: v4}}},
	} {
		got := lacking(c.slices, "kube-system/kube-apiserver", "https")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if got := serversOf([]*discoveryv1.EndpointSlice{unnamed}, "https"); len(got) != 1 {
		t.Errorf("an only port without a name: %v", got)
	}
}

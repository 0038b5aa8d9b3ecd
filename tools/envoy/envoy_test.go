// Package envoy has Envoy's own types read the configuration that `rota front` writes for it. It is a module of its own
// because these types are many.
package envoy

import (
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // a type in an Any
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/anypb"
	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/apiservers/front"
)

// read reads YAML into a message as strictly as Envoy does: unknown fields and types are errors.
func read(text []byte, into proto.Message) error {
	j, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(j, into)
}

type validator interface{ ValidateAll() error }

// validate holds a message, and all that are in it, against the rules of Envoy's schema. The generated code leaves out
// what is in an Any.
func validate(t *testing.T, m proto.Message) (anys int) {
	t.Helper()
	if err := m.(validator).ValidateAll(); err != nil {
		t.Error(err)
	}
	err := protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		last := p.Index(-1)
		message, ok := last.Value.Interface().(interface{ Interface() proto.Message })
		if !ok || last.Step.Kind() == protopath.RootStep {
			return nil
		}
		if v, ok := message.Interface().(validator); ok {
			if err := v.ValidateAll(); err != nil {
				t.Errorf("%v: %v", p.Path, err)
			}
		}
		if _, ok := message.Interface().(*anypb.Any); ok {
			anys++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return anys
}

func fronts() map[string]*front.Front {
	plain := front.Default()
	plain.Proxy, plain.Static = front.Envoy, []string{"192.168.0.11:6443"}
	other := *plain
	other.Static = []string{"192.168.0.11:6443", "[fd00::1]:6443"}
	other.Client, other.Listen, other.SlowStart.Duration = "/etc/kubernetes/pki/front.pem", "[::]:7443", 0
	return map[string]*front.Front{"plain": plain, "other": &other}
}

func TestBootstrap(t *testing.T) {
	for name, f := range fronts() {
		t.Run(name, func(t *testing.T) {
			text, err := f.Envoy()
			if err != nil {
				t.Fatal(err)
			}
			var b bootstrapv3.Bootstrap
			if err := read(text, &b); err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			if anys := validate(t, &b); anys != 4 {
				t.Errorf("%d messages in an Any, want 4: two listeners' filters, the router and TLS", anys)
			}
			servers := b.StaticResources.Clusters[0]
			if servers.GetType() != clusterv3.Cluster_EDS || servers.EdsClusterConfig.GetEdsConfig().GetPathConfigSource().
				GetPath() != f.Dir+"/"+front.EndpointsFile {
				t.Errorf("the servers are not those in the file: %v", servers)
			}
			// Both are found by name at run time only.
			wanted, found := servers.HealthChecks[0].TransportSocketMatchCriteria, false
			for _, m := range servers.TransportSocketMatches {
				found = found || proto.Equal(m.Match, wanted)
			}
			if !found {
				t.Error("no transport socket for the health checks")
			}
		})
	}
}

func TestEndpoints(t *testing.T) {
	servers := []front.Server{{Address: "10.0.3.4:6443"}, {Address: "10.0.3.5:6443", Draining: true}}
	for name, f := range fronts() {
		for what, servers := range map[string][]front.Server{"cold": nil, "warm": servers} {
			t.Run(name+" "+what, func(t *testing.T) {
				text, err := f.EnvoyEndpoints(servers)
				if err != nil {
					t.Fatal(err)
				}
				var r discoveryv3.DiscoveryResponse
				if err := read(text, &r); err != nil {
					t.Fatalf("%v:\n%s", err, text)
				}
				validate(t, &r)
				var a endpointv3.ClusterLoadAssignment
				if err := r.Resources[0].UnmarshalTo(&a); err != nil {
					t.Fatal(err)
				}
				if err := a.ValidateAll(); err != nil {
					t.Error(err)
				}
				count := 0
				for i, e := range a.Endpoints {
					if e.Priority != uint32(i) {
						t.Errorf("priority %d is %d", i, e.Priority)
					}
					count += len(e.LbEndpoints)
				}
				if count != len(servers)+len(f.Static) {
					t.Errorf("%d endpoints", count)
				}
				last := a.Endpoints[len(a.Endpoints)-1].LbEndpoints[0].GetEndpoint().GetAddress().GetSocketAddress()
				if last.GetAddress() != "192.168.0.11" || last.GetPortValue() != 6443 {
					t.Errorf("the last priority has %v, want the static servers", last)
				}
			})
		}
	}
}

// TestRefusal: the tests above can fail.
func TestRefusal(t *testing.T) {
	text, err := fronts()["plain"].Envoy()
	if err != nil {
		t.Fatal(err)
	}
	for was, is := range map[string]string{
		"lb_policy: LEAST_REQUEST": "lb_policy: LEAST_CONN", "port_value: 7443": "port_value: 74430",
		"max_connect_attempts": "max_attempts", "TcpProxy": "TcpProxi",
	} {
		bad := strings.Replace(string(text), was, is, 1)
		var b bootstrapv3.Bootstrap
		err := read([]byte(bad), &b)
		if err == nil {
			err = b.ValidateAll()
		}
		if bad == string(text) || err == nil {
			t.Errorf("%s instead of %s is accepted", is, was)
		}
	}
}

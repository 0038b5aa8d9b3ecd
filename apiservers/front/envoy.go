package front

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Files and names of Envoy.
const (
	EnvoyFile = "envoy.yaml"
	// EndpointsFile contains the servers. Envoy rereads it when it is replaced.
	EndpointsFile = "endpoints.yaml"
)

// Envoy returns the text of envoy.yaml, the bootstrap, which refers to the file with the endpoints.
func (f *Front) Envoy() ([]byte, error) {
	mark, fields, err := renderYAML(EnvoyFile, f.view(nil, ""))
	if err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(fields)
	return append(mark, text...), err
}

// EnvoyEndpoints returns the text of endpoints.yaml. servers must be as Admit returns them.
func (f *Front) EnvoyEndpoints(servers []Server) ([]byte, error) {
	mark, fields, err := renderYAML(EndpointsFile, f.view(servers, ""))
	if err != nil {
		return nil, err
	}
	resources, err := yaml.Marshal(fields["resources"])
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(resources)
	fields["version_info"] = hex.EncodeToString(sum[:8])
	text, err := yaml.Marshal(fields)
	return append(mark, text...), err
}

// seconds formats a duration as in the JSON of Protocol Buffers.
func seconds(d metav1.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }

// socket formats an address for Envoy, as YAML.
func socket(address string) string {
	a, _ := parseAddress(address)
	more := ""
	if a.Addr() == netip.IPv6Unspecified() {
		more = ", ipv4_compat: true" // like HAProxy
	}
	return fmt.Sprintf("{socket_address: {address: %q, port_value: %d%s}}", a.Addr(), a.Port(), more)
}

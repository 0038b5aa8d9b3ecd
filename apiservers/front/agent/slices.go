package agent

import (
	"fmt"
	"net/netip"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/apiservers/front"
)

// serversOf returns the servers in EndpointSlices: the first address of each endpoint, with the port of the given name.
// Servers that terminate or are not ready drain.
//
// If none is ready, those that do not terminate stay in use: after an outage all are reported as not ready, because no
// API server was there to report otherwise. The proxy checks each server itself and soon finds out.
func serversOf(slices []*discoveryv1.EndpointSlice, port string) []front.Server {
	var servers []front.Server
	var leaving []bool
	ready := false
	for _, s := range slices {
		number, ok := portOf(s, port)
		if !ok || s.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, e := range s.Endpoints {
			if len(e.Addresses) == 0 {
				continue
			}
			address, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue // the API server has checked it
			}
			terminates := ptr.Deref(e.Conditions.Terminating, false)
			isReady := ptr.Deref(e.Conditions.Ready, true) && !terminates
			ready = ready || isReady
			leaving = append(leaving, terminates)
			servers = append(servers, front.Server{
				Address: netip.AddrPortFrom(address, number).String(), Draining: !isReady,
			})
		}
	}
	if !ready {
		for i := range servers {
			servers[i].Draining = leaving[i]
		}
	}
	return servers
}

// lacking returns why the slices of a service cannot contain a server, or "".
func lacking(slices []*discoveryv1.EndpointSlice, service, port string) string {
	if len(slices) == 0 {
		return fmt.Sprintf("service %s has no EndpointSlice: there is no such service, or it has no selector. Correct "+
			"service in %s, if that is not as it should be", service, front.FrontFile)
	}
	var names []string
	for _, s := range slices {
		if _, ok := portOf(s, port); ok {
			return ""
		}
		for _, p := range s.Ports {
			names = append(names, fmt.Sprintf("%q", ptr.Deref(p.Name, "")))
		}
	}
	if len(names) == 0 {
		return "" // without endpoints there may be no port
	}
	return fmt.Sprintf("service %s has no port %q, but %s: correct portName in %s", service, port,
		strings.Join(names, ", "), front.FrontFile)
}

// portOf returns the port with the given name, or the only port if it has no name.
func portOf(s *discoveryv1.EndpointSlice, name string) (uint16, bool) {
	for _, p := range s.Ports {
		if number := ptr.Deref(p.Port, 0); ptr.Deref(p.Name, "") == name && number > 0 && number < 1<<16 {
			return uint16(number), true
		}
	}
	if len(s.Ports) == 1 && ptr.Deref(s.Ports[0].Name, "") == "" && name != "" {
		return portOf(s, "")
	}
	return 0, false
}

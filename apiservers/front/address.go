package front

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// parseAddress parses IP:PORT. It refuses names, since at a cold start there may be no DNS.
func parseAddress(text string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(text)
	switch {
	case err != nil:
		return a, fmt.Errorf("%q: must be IP:PORT, or [IP]:PORT for IPv6. Names are not resolved, since at a cold start "+
			"there may be no DNS", text)
	case a.Port() == 0:
		return netip.AddrPort{}, fmt.Errorf("%q: port 0", text)
	case a.Addr().Zone() != "":
		return netip.AddrPort{}, fmt.Errorf("%q: an address with a zone", text)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// meets reports whether a client that connects to the address to reaches a server that listens on listen, as far as the
// addresses show.
func meets(listen, to netip.AddrPort) bool {
	if !listen.IsValid() || !to.IsValid() || listen.Port() != to.Port() {
		return false
	}
	all := listen.Addr().IsUnspecified()
	return listen.Addr() == to.Addr() || all && (to.Addr().IsLoopback() || to.Addr().IsUnspecified())
}

// Admit returns the servers that the front may use, sorted by address, and the reasons why it may not use the others.
// local are the host's own addresses. An address that is also a static server's counts as the static server.
func (f *Front) Admit(servers []Server, local []netip.Addr) (admitted []Server, refused []error) {
	refuse := func(s Server, why string) {
		refused = append(refused, fmt.Errorf("endpoint %s of service %s is left out: %s", s.Address, f.Service, why))
	}
	listen, _ := parseAddress(f.Listen)
	static := map[netip.AddrPort]bool{}
	for _, text := range f.Static {
		a, _ := parseAddress(text)
		static[a] = true
	}
	seen := map[netip.AddrPort]int{}
	for _, s := range servers {
		a, err := parseAddress(s.Address)
		_, again := seen[a]
		switch {
		case err != nil:
			refuse(s, err.Error())
		case a.Addr().IsUnspecified():
			refuse(s, "clients cannot connect to this address")
		case meets(listen, a) ||
			listen.Addr().IsUnspecified() && listen.Port() == a.Port() && slices.Contains(local, a.Addr()):
			refuse(s, "the front itself listens there")
		case static[a]:
			refuse(s, "it is a static server")
		case again: // in two slices, while it moves between them
			admitted[seen[a]].Draining = admitted[seen[a]].Draining && s.Draining
		default:
			seen[a] = len(admitted)
			admitted = append(admitted, Server{Address: a.String(), Draining: s.Draining})
		}
	}
	slices.SortFunc(admitted, func(a, b Server) int { return strings.Compare(a.Address, b.Address) })
	return admitted, refused
}

// Circle returns an error if a static server is the front itself, on a host with the local addresses. Validate finds
// the cases that do not depend on the host.
func (f *Front) Circle(local []netip.Addr) error {
	listen, _ := parseAddress(f.Listen)
	for _, text := range f.Static {
		a, _ := parseAddress(text)
		if meets(listen, a) ||
			listen.Addr().IsUnspecified() && listen.Port() == a.Port() && slices.Contains(local, a.Addr()) {
			return fmt.Errorf("static API server %s: this host has the address, and the front itself listens there, on %s; it "+
				"would send connections in a circle. Listen on another port, or on one address", text, f.Listen)
		}
	}
	return nil
}

// Local is the address at which this host reaches the front.
func (f *Front) Local() string {
	a, _ := parseAddress(f.Listen)
	switch {
	case !a.Addr().IsUnspecified():
	case a.Addr().Is4():
		a = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.Port())
	default:
		a = netip.AddrPortFrom(netip.IPv6Loopback(), a.Port())
	}
	return a.String()
}

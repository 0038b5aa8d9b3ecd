// Package front writes the configuration of a proxy on each host in front of the API servers: HAProxy's or Envoy's. It
// passes TCP through, so that clients' certificates reach the API server. The servers of a Deployment come first. The
// static servers are the fallback.
//
// The package is pure: it turns a Front and a list of servers into files, and the same input always gives the same
// bytes. Package agent keeps the list current.
package front

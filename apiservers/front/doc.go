// Package front writes the configuration of the proxy that stands on a host before the API servers: HAProxy's or
// Envoy's. It passes TCP through, so that clients' certificates reach the API server. The servers of a Deployment come
// first, the static ones stand in.
//
// The package is pure: a Front and a list of servers go in, files come out, and the same input always gives the same
// bytes. Package proxy/agent keeps the list current.
package front

// Package footprint measures the cost of an operator's replicas on a real API server: memory, network and processor
// time. It measures each delivery of Rota and stock leader election. Idle replicas are measured too, to subtract their
// cost. `make footprint` renders the result into docs/memory.md.
//
// Replicas are processes. This package's command starts itself again as a replica, see OperatorMain. Replicas report
// their cost over loopback HTTP.
package footprint

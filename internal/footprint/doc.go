// Package footprint measures what replicas of an operator cost, in memory, network and processor time, on a real API
// server: with each delivery of Rota and with stock leader election, and replicas without anything to do, to subtract.
// `make footprint` renders the result into docs/memory.md.
//
// Replicas are processes: this package's command starts itself again, see OperatorMain. What a replica costs it
// tells over loopback HTTP.
package footprint

// Package member is the protocol of one replica as a pure state machine: Step takes an event and returns actions. It
// knows no clock, goroutine, I/O or Kubernetes, so that production, the simulator and tests run the same code.
package member

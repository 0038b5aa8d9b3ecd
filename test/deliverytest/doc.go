// Package deliverytest is the conformance suite of package delivery: every delivery mode passes it, in memory and
// on a real API server. It also has the API server in memory, and a ListerWatcher that misbehaves.
package deliverytest

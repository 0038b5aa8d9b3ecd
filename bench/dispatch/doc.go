// Package dispatch measures dispatchers: their memory, how soon a change reaches a worker, how many keys they hand
// out, and what that costs the API server beside caches. It uses a control plane and processes of its own. It is not a
// test. `make bench-dispatch` runs it.
package dispatch

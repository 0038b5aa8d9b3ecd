// Package sim runs rotas of production members in simulated time, to look for what breaks the protocol.
//
// A World holds the API server's objects of one rota and any number of Nodes: replicas that run the production
// member and the production gate, each with clocks of its own. Requests, watches, stores and reconciles are modelled
// as delays and faults. A world is one goroutine and one seeded source of randomness, so that a seed repeats
// exactly. After every step it is checked that no two members can work on one slot; see check.go for the list.
//
// A deep world has two API servers, of which one may lag, and the objects that the members work on: server.go, object.go and
// informer.go.
//
// Chaos makes up faults from a seed, in deep worlds from DeepFrom on (deep.go); scripts drive a World by hand (package member's tests).
// Survey counts what many lives were about, Timeline draws one.
package sim

// Package sim runs rotas of production members in simulated time, to look for what breaks the protocol.
//
// A World holds the API server's objects of one rota and any number of Nodes: replicas that run the production member,
// driver, holders, controllers and gate, each with its own clocks. Requests, watches and reconciles are modelled as
// delays and faults. Only one goroutine of a world runs at a time (runner.go), and it has one seeded source of
// randomness, so that a seed repeats exactly. After every step it is checked that no two members can work on one slot;
// see check.go for the list.
//
// Chaos makes up a life from a seed: two API servers, of which one may lag (server.go), the objects that members work
// on (object.go), members that follow these with the production stream (informer.go), and faults (happen.go).
// Survey counts what many lives were about.
//
// Scripts drive a World by hand (package member's tests). Nothing takes its time in such a world but what the script
// holds up, and there are no objects.
package sim

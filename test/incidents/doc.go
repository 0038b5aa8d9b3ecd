// Package incidents does to an operator what goes wrong at night, on a real API server, and asks what somebody on call
// would ask: `rota check`, `rota status` and `rota who`. Each incident has to be named by them, and to be over for them
// once it is repaired. The tests print a table of what was said and how soon.
//
// TestHostile has the operator meet what clusters do to operators: webhooks, policies, conversions, proxies. It runs
// with stock leader election, Filter and SlotLabel. What stock survives, Rota has to survive.
package incidents

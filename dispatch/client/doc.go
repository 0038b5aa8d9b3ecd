// Package client takes keys from dispatchers. [Run] is a worker: it takes keys, calls a handler for each, extends the
// takes of slow handlers, and reports the results to the dispatchers. A [Client] sends single requests, for programs
// that do this themselves. Programs that work on many keys at once can end and extend many takes in one request, with
// Client.DoneAll and Client.ExtendAll.
//
// A handler gets a key, not an object. It should read the object from the API server and not from a cache, which may be
// older than the change that the key is about. A take is exclusive while it lasts, and the handler's context ends with
// it. But a process that is paused at the wrong moment can still send a write afterwards. Send resourceVersion with
// writes where you can, so that the API server refuses late ones.
//
// A deleted object comes as a take with Gone. As with an informer, its handler finds that the object does not exist.
//
// # When the dispatchers do not answer
//
// The client retries requests while there is no connection, and while the dispatchers are unavailable or limit the rate
// (429, 503). The delay is Retry-After, or doubles from 100 ms to 10 s, with jitter. If a take could not be ended in
// time, its key is handed out again when the take expires.
//
// Deadlines are measured from before the request was sent, by a clock that continues while the machine sleeps.
package client

// Package client takes keys from dispatchers. [Run] is a worker: it takes keys, calls a handler for each, extends the
// takes of handlers that take long, and tells the dispatchers how each ended. A [Client] sends single requests, for
// programs that do this themselves. Programs that work on many keys at once end and extend them by Client.DoneAll and
// Client.ExtendAll, many in a request.
//
// A handler gets a key, not an object. It reads the object itself, from the API server and not from a cache: a cache
// may be older than the change that the key is about. A take is exclusive while it lasts, and a handler's context ends
// with it. But a process that is paused at the wrong moment can still send a write afterwards. Send resourceVersion
// with writes where you can, so that the API server refuses those that come late.
//
// A deleted object comes as a take with Gone. Its handler finds that it does not exist, as with an informer.
//
// # When the dispatchers do not answer
//
// Requests are sent again while there is no connection, or the dispatchers are unavailable or ask for less (429, 503).
// The delay is what Retry-After says, or doubles from 100 ms to 10 s, and has jitter. An object whose take could not be
// ended in time is handed out again when the take expires.
//
// Deadlines are measured by a clock that goes on while the machine sleeps, from before the request was sent.
package client

// Package proxy stands between one client and the API servers, and does to its requests what networks and servers do on bad
// days. Below HTTP it holds bytes back, in each direction by itself, as a broken network does: nothing is answered and
// nothing is closed, and what is in kernels' buffers arrives when it heals. In HTTP it delays, throttles, answers instead of the
// server, cuts watches, and keeps a write until it is told to send it.
//
// The connection to the client is TLS with HTTP/2, as with a real API server.
package proxy

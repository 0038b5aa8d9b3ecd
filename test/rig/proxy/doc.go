// Package proxy stands between one client and the API servers, and makes the network and the servers fail for it. Below
// HTTP it holds bytes back, in each direction separately, as a broken network does: nothing is answered and nothing is
// closed, and what is in kernels' buffers arrives when the network works again. In HTTP it delays, throttles, answers
// instead of the server, cuts watches, and holds a write until it is told to send it.
//
// The connection to the client is TLS with HTTP/2, as with a real API server.
package proxy

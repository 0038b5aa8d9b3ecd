// Package balance measures how requests and watches spread over API servers after a scale-up, with a real HAProxy
// before real API servers, and what is gained by having clients connect anew.
//
// Each API server has a certificate with its own name, so that clients know who answers.
package balance

// Package etcd measures what it is worth to keep Leases and Events in etcds of their own: how long the API server
// takes for creates and updates of other objects while many Leases are renewed.
package etcd

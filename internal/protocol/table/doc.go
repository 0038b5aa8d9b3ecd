// Package table holds the one piece of state that members share: which member owns which slots.
//
// A Table is a value. Only the transitions change a table, and they are called on a Clone. Every version that is
// written raises Epoch by at least one and passes Valid. Readers call Valid before they use a version (rule R4). The
// package is pure: it uses neither clocks nor Kubernetes.
package table

// Package table holds the one piece of state that members share: which member owns which slots.
//
// A Table is a value. Nothing in this package changes one in place, except the transitions on a Clone. Every version
// that is written raises Epoch by at least one and passes Valid. Whoever reads a version calls Valid before believing
// it (rule R4). The package is pure: it knows neither clocks nor Kubernetes.
package table

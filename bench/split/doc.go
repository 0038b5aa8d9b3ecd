// Package split measures whether a flood of garbage slows down the rest of kube-controller-manager, and whether
// `rota split kcm` helps. It runs the real programs: etcd, an API server, and one kube-controller-manager or one for
// each default group. There are no nodes, so Pods are objects only. `make bench-split` runs it.
package split

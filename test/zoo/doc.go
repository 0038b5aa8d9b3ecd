// Package zoo keeps operators as people write them, each with a habit that sharding has to bear: watches added at run
// time, names that are empty at first, namespaces on cluster-scoped references, finalizers of children whose owner is
// gone, selectors that are unset, expectations, polls, batchers, children in other clusters, one object that sums up
// all others. They are written from the documentation and behavior of operators that are in use; none of their code is
// here.
//
// Each one goes through the same life twice, with a stock manager under leader election and with the members of a rota:
// joins, leaves, a kill, a rolling restart, and changes and deletions in every gap between. At the end the objects have
// to be what the operator makes of them, both times.
package zoo

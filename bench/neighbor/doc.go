// Package neighbor measures whether a flooded controller slows down a quiet one of the same operator. The operator has
// three replicas and two controllers that are not sharded. With leader election one replica runs both. As duties of a
// rota they run on different replicas. `make bench-split ARGS=--operator` runs it.
package neighbor

// Package drainlabel shards a controller by labels on its objects, to compare Rota with. The protocol is that of
// github.com/timebertt/kubernetes-controller-sharding since v0.12.0 (September 2025), written anew from its sources:
//
//   - Each shard holds a Lease of its own. While the Lease is valid, or expired for less than its duration, the shard
//     is available. A sharder acquires the Lease of a shard that was silent for longer.
//   - An object belongs to the available shard that consistent hashing of its name yields, with 100 virtual nodes a
//     shard. A child belongs to its controlling owner's.
//   - A webhook labels objects without a shard when they are written.
//   - When a shard comes or goes, and every five minutes, the sharder lists the metadata of all objects from the API
//     server's watch cache, one kind after the other. A main object whose shard is available and the wrong one gets the
//     drain label. Of other objects with a wrong shard, or none, it takes the labels off, and the webhook assigns them.
//     It does so with 100 objects at once, and anew 5 s after one of these writes has failed.
//   - A shard caches only objects with its label. It takes both labels off an object with the drain label, in place of
//     a reconcile; the webhook assigns it then.
//
// So a main object that moves costs two writes, and each child one. One sharder runs here, where the original has two
// of which one is the leader.
package drainlabel

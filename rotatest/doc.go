// Package rotatest tests whether an operator works correctly when sharded. It takes one function call in the operator's
// tests, and a real API server such as envtest's.
//
//	func TestSharded(t *testing.T) {
//		rotatest.Run(t, rotatest.Options{
//			Config:  cfg, // of an API server that nothing else uses meanwhile
//			Scheme:  scheme,
//			Setup:   func(mgr *ctrlrt.Manager) error { return (&Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr) },
//			Objects: []client.Object{...},
//		})
//	}
//
// [Run] runs the operator as one member, to see what it makes of the objects. Then it runs the operator as two members,
// several times from the same objects, and disturbs them: slots move while work goes on, watches lag, and members are
// killed between two writes. Each time the objects have to become what they became with one member. A failure lists the
// objects, the fault, the seed and the command that runs it again. docs/shard.md describes the faults and their limits.
//
// It is not meant for tests of a reconciler's logic: a test with one member (rota.Options.Solo) is enough for that. It
// does not support operators that use client-go alone.
package rotatest

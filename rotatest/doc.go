// Package rotatest tests whether an operator survives being sharded: one function in its tests, on a real API server
// such as envtest's.
//
//	func TestSharded(t *testing.T) {
//		rotatest.Run(t, rotatest.Options{
//			Config:  cfg, // of an API server that nobody else uses meanwhile
//			Scheme:  scheme,
//			Setup:   func(mgr *ctrlrt.Manager) error { return (&Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr) },
//			Objects: []client.Object{...},
//		})
//	}
//
// [Run] runs the operator as one member, to see what it makes of the objects. Then it runs it as two members, again and
// again from the same objects, and disturbs them: slots move while work goes on, watches lag, and members are killed
// between two writes. Each time the objects have to become what they became with one member. A failure names the
// objects, the fault, the seed and the command that runs it again. docs/shard.md has the faults, and what they do
// not show.
//
// It is not for tests of what a reconciler does: a test with one member (rota.Options.Solo) is enough for that. Nor is
// it for operators of client-go alone.
package rotatest

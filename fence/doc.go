// Package fence builds the policy by which the API server itself refuses the writes of who is no member of a rota: a
// ValidatingAdmissionPolicy that compares the Pod in a request's token with the Pods in the rota's table.
//
// A member stops by itself before others take its slots (rule R2), but a process that is paused between its last look at
// the clock and the sending of a write does not know that it was paused. What it sends when it wakes up is refused
// here, as soon as the API server has seen the table without it.
//
// Policy builds the policy and its binding, Keeper what all fences of a cluster share, Manifest prints them, Check looks for what
// would keep them from working in a cluster, Apply applies them, and Verify tries whether they work. Members need nothing of this package, and no permission more. It does not replace the gate:
// members of the table are trusted to know their slots. See docs/fence.md.
package fence

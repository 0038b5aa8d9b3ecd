// Package fence builds an admission policy with which the API server refuses writes of processes that are not members
// of a rota. It is a ValidatingAdmissionPolicy that compares the Pod in a request's token with the Pods in the table.
//
// A member stops by itself before others take its slots (rule R2). But a process that is paused between its last look
// at the clock and the sending of a write does not know that it was paused. The fence refuses what it sends when it
// wakes up, as soon as the API server has seen the table without it.
//
//   - Policy builds the policy and its binding, Keeper the objects that all fences of a cluster share.
//   - Manifest prints them, and Apply applies them.
//   - Check looks for what would keep them from working in a cluster, and Verify tries whether they work.
//   - Look reads which fence a rota has, and Installed whether it is that of this release.
//
// Members do not use this package and need no further permission. The fence does not replace the gate: it trusts
// members to know their slots. See docs/guarantees.md.
package fence

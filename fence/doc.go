// Package fence builds an admission policy with which the API server refuses writes of processes that are not members
// of a rota. It is a ValidatingAdmissionPolicy that compares the Pod in a request's token with the Pods in the table.
//
// A member stops on its own before others take its slots (rule R2). But a process that is paused after its last look at
// the clock and before it sends a write cannot notice that. When it wakes up, the fence refuses the write, provided
// that the API server has seen the table without this member.
//
//   - Policy builds the policy and its binding, and Keeper the objects that all fences of a cluster share.
//   - Manifest prints them, and Apply applies them.
//   - Check looks for problems in a cluster, and Verify tests the fence.
//   - Look reads which fence a rota has, and Installed whether it matches this release.
//
// Members do not use this package and need no further permission. The fence does not replace the gate: it trusts
// members to know their slots. See docs/guarantees.md.
package fence

// Package rig puts replicas of an operator to work on a real control plane, disturbs them, and has them judged.
//
//	Rig ── Run(scenario) ── prepare → load → Scenario.Do → load → settled? → at rest? → judge
//	 ├── Cluster    a control plane that knows Websites, with audit logs; or the user's own cluster
//	 ├── Fleet      the replicas: child processes (Replica) that run an Operator, each perhaps behind a proxy
//	 ├── Load       creates, changes and deletes Websites at a rate, and records what it did
//	 ├── Follower   the versions of the table; recorder: those of all objects
//	 └── judge.Judge ◀── journals, audit logs, table, recording
//
// # Writing a scenario
//
// A Scenario is data and one function. Do gets the Run: it disturbs replicas and waits for what has to follow.
//
//	rig.Scenario{
//		Name: "restart", What: "a member's container is killed (SIGKILL) and starts again", Crash: true,
//		Do: func(ctx context.Context, r *rig.Run) error { return r.Restart(ctx, r.Any()) },
//	}
//
// Run has the disturbances: Join, Leave, Restart, Replica.Kill, Replica.Pause, a roll (NextBuild, then Join and Leave
// in turns), network faults (Each, Replica.Proxy, Hold) and API server faults (Plane.KillServer, Plane.StartServer).
// It has the waits as well: Rest, Joined, Expelled, TakenOver, UntilTable. What a scenario may cost is data: Planned,
// Crash, Leases, Late. Package chaos is a list of scenarios.
//
// # A story before an audience
//
// A Stage has what a longer story needs: a cluster, which may be the user's own, a Fleet, an AimedLoad, and phases that
// are timed. It fits the load to the machine, waits for what has to follow, and counts what is right in the end. Play
// opens and closes it. Packages demo, demo/dispatch and skew play stories, and judge them by what package judge says of
// Fleet.Records and Cluster.ReadAudit.
//
// # The operator under test
//
// A program becomes a replica by calling OperatorMain if the environment has EnvOperator; test binaries do so in
// TestMain. The operator is examples/website with a journal and two duties. Operator has a flag for each behavior that
// a scenario needs: delivery, durations, leader election instead of Rota, failing or slow builds, status only.
// Replicas obey their standard input: they stop themselves at a place, work slower, count their goroutines.
package rig

// Package demo runs the main job in front of an audience: the Website operator on several processes and a real API
// server, under a load that never stops, while replicas join, leave, crash and roll. Package check judges the run.
package demo

// Package demo runs the main job in front of an audience: the Website operator on several processes and a real API
// server, under a load that never stops, while replicas join, leave, crash and roll. It is a few stories for test/rig.
package demo

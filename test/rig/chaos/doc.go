// Package chaos has a rota work through faults, one after another, on a real control plane: scenarios of package rig. A
// campaign runs them in turns, keeps the records of runs that fail, and reports.
package chaos

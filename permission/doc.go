// Package permission has the permissions that a program needs in Kubernetes: the rules, a check for missing ones, and
// errors that say what to add.
package permission

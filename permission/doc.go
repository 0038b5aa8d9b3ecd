// Package permission is what a program needs to be allowed in Kubernetes: the rules, what of them is missing, and the
// errors that say so with what to add.
package permission

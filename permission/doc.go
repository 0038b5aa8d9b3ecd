// Package permission defines the permissions that a program needs in Kubernetes. It checks for missing ones, and its
// errors contain the rules to add.
package permission

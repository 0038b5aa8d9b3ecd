// Package takeover measures how soon the objects of a member that is gone are worked on, and how soon a new member
// works, with many objects: on a control plane and in processes of its own. It is not a test. The command is
//
//	go run ./internal/takeover/cmd
package takeover

// Package takeover measures takeovers with many objects: how soon the objects of a dead member are worked on, and how
// soon a new member works. It uses a control plane and processes of its own. It is not a test. The command is
//
//	cd bench && go run ./takeover/cmd
package takeover

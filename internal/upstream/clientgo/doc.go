// Package clientgo reads what client-go and the code that its generators make do not export, and fields and methods
// that only some of the supported versions of client-go and apimachinery have. docs/versions.md lists the differences.
// Each function names the upstream change that would make it unnecessary. The tests run with every supported version.
package clientgo

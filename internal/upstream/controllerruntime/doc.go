// Package controllerruntime reads what controller-runtime does not export, and fields that only some of its supported
// versions have. Each function names the upstream change that would make it unnecessary. The tests run with every
// supported version and fail if a type or field that is read here changes.
//
// It is apart from package clientgo beside it because programs without controller-runtime link that one.
package controllerruntime

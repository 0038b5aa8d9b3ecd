// Package deployment turns the static Pod of a kube-apiserver into a Deployment that scales: it decides what `rota
// apiservers` writes, and refuses what cannot work away from the static Pod's host.
//
// The files that the static Pod reads from its host become Secrets, and ConfigMaps for those without credentials. They
// are mounted at their paths on the host, so flags, and files that refer to files, stay as they are.
package deployment

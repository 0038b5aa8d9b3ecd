// Package config embeds the manifests of the Website example.
package config

import _ "embed" // manifests

// CRD defines the kind Website.
//
//go:embed crd/web.example.com_websites.yaml
var CRD []byte

// Role is the ClusterRole of the operator, and its binding.
//
//go:embed rbac/role.yaml
var Role []byte

// RotaRole is the Role that Rota needs on top, and its binding.
//
//go:embed rbac/rota.yaml
var RotaRole []byte

// LabelRole is the ClusterRole that Rota needs on top to label objects, and its binding.
//
//go:embed rbac/labels.yaml
var LabelRole []byte

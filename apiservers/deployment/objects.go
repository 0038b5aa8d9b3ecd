package deployment

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const serviceComment = "its EndpointSlices show `rota front agent` which API servers are ready.\n" +
	"Inside the cluster it is also an address for them."

const autoscalerComment = `more API servers while they work hard, fewer when that has long been over.
Each that leaves ends its watches, which all begin anew elsewhere: so one goes at a time.`

// A Store is a Secret or ConfigMap that holds files.
type Store struct {
	Kind, Name, Type string
	// Keys are the keys of its data, with the path of each file.
	Keys map[string]string
}

// SortedKeys returns the keys in order.
func (s Store) SortedKeys() []string { return slices.Sorted(maps.Keys(s.Keys)) }

// Command returns the command line of the API servers.
func (p *Plan) Command() []string { return p.line.Words() }

// Stores returns the Secrets and the ConfigMap, sorted by name.
func (p *Plan) Stores() []Store {
	byName := map[string]*Store{}
	for _, f := range p.files {
		s := byName[f.in]
		if s == nil {
			s = &Store{Kind: "Secret", Name: p.meta(f.in).Name, Keys: map[string]string{}}
			if f.in == inConfig {
				s.Kind = "ConfigMap"
			}
			byName[f.in] = s
		}
		s.Keys[f.key] = f.path
	}
	var out []Store
	for _, in := range slices.Sorted(maps.Keys(byName)) {
		s := byName[in]
		if s.Kind == "Secret" {
			s.Type = string(corev1.SecretTypeOpaque)
			if s.Keys[corev1.TLSCertKey] != "" && s.Keys[corev1.TLSPrivateKeyKey] != "" {
				s.Type = string(corev1.SecretTypeTLS)
			}
		}
		out = append(out, *s)
	}
	return out
}

func (p *Plan) secrets() []*corev1.Secret {
	var out []*corev1.Secret
	for _, s := range p.Stores() {
		if s.Kind != "Secret" {
			continue
		}
		secret := &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: p.o.Namespace, Labels: p.labels()},
			Type:       corev1.SecretType(s.Type),
			Data:       map[string][]byte{},
		}
		for key, name := range s.Keys {
			secret.Data[key] = p.file(name).text
		}
		out = append(out, secret)
	}
	return out
}

// config returns the ConfigMap, or nil without configuration files.
func (p *Plan) config() *corev1.ConfigMap {
	var m *corev1.ConfigMap
	for _, f := range p.files {
		if f.in != inConfig {
			continue
		}
		if m == nil {
			m = &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: p.meta(inConfig),
				Data:       map[string]string{},
			}
		}
		m.Data[f.key] = string(f.text)
	}
	return m
}

// Summary describes the plan in a few words.
func (p *Plan) Summary() string {
	version := p.Version
	if version == "" {
		version = "of a version that its image does not name"
	}
	return fmt.Sprintf("%s %s: Deployment %s in namespace %s, %d to %d API servers on port %d, scaled at %s CPU each",
		program, version, p.o.Name, p.o.Namespace, p.o.Min, p.o.Max, p.port, p.o.CPU.String())
}

package deployment

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rota-dev/rota/apiservers/cmdline"
)

// Options configure a Plan.
type Options struct {
	// From names the manifest in findings.
	From string
	// Root is the folder that represents the host's "/". Default "/".
	Root string
	// PKI is the folder that represents the host's /etc/kubernetes/pki. Default: the one below Root.
	PKI string

	// Name is the name of the Deployment, the Service and the other objects. Namespace is their namespace.
	Name, Namespace string
	// Set and Unset change flags of the static Pod's kube-apiserver, by their names without dashes. The values in Set
	// replace all values of a flag. Only Repeatable flags may have several.
	Set   map[string][]string
	Unset []string

	// Min and Max are the bounds of the autoscaler, 2 ≤ Min ≤ Max.
	Min, Max int32
	// CPU is the average CPU use of the API servers above which the autoscaler adds one.
	CPU resource.Quantity
	// JoinKubernetes makes the API servers endpoints of the Service "kubernetes", like the static ones.
	JoinKubernetes bool
	// Names are additional names and addresses by which clients reach the API servers.
	Names []string
	// NodeSelector and Tolerations are for the Pods.
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
	// ReferenceSecrets leaves out the Secrets, which the user then creates.
	ReferenceSecrets bool

	// Now is the time at which certificates must be valid.
	Now time.Time
}

// A Plan is the Deployment planned for a static Pod.
type Plan struct {
	// Version is the version in the image's tag, or "".
	Version string
	// Notes are messages to the operator.
	Notes []string

	o         Options
	port      int32
	line      cmdline.Line // as it will run
	container corev1.Container
	volumes   []corev1.Volume
	spec      corev1.PodSpec // of the static Pod
	files     []*file
}

// A Finding is a problem that prevents the Deployment from working, with a remedy.
type Finding struct{ Object, Wrong, Cure string }

// A RefusedError is returned for a static Pod that cannot become a Deployment. It contains all findings.
type RefusedError struct{ Findings []Finding }

func (r *RefusedError) Error() string {
	lines := make([]string, 0, len(r.Findings))
	for _, f := range r.Findings {
		lines = append(lines, fmt.Sprintf("%s: %s; %s", f.Object, f.Wrong, f.Cure))
	}
	return strings.Join(lines, "\n")
}

// A planner makes a plan and collects findings.
type planner struct {
	*Plan
	findings []Finding
}

func (p *planner) refuse(object, cure, wrong string, args ...any) {
	f := Finding{object, fmt.Sprintf(wrong, args...), cure}
	if !slices.Contains(p.findings, f) {
		p.findings = append(p.findings, f)
	}
}

func (p *planner) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// New plans a Deployment from the manifest of a static Pod. The error is a *RefusedError with all findings. New reads
// the files that the manifest refers to, and no others.
func New(manifest []byte, o Options) (*Plan, error) {
	p := &planner{Plan: &Plan{o: o}}
	if p.readManifest(manifest) {
		p.changeFlags()
		p.checkFlags()
		p.checkLoopback()
		p.collect()
		p.checkVolumes()
		p.checkCertificates()
		p.checkSizes()
		p.finishFlags()
	}
	if len(p.findings) > 0 {
		return nil, &RefusedError{p.findings}
	}
	return p.Plan, nil
}

// changeFlags applies the user's Set and Unset.
func (p *planner) changeFlags() {
	for _, name := range slices.Sorted(maps.Keys(p.o.Set)) {
		before, values := p.line.Values(name), p.o.Set[name]
		if gone := without(before, values); len(before) > 1 && len(gone) > 0 {
			p.note("--%s of the static Pod is there %d times, and what you set replaces all. These are gone: %s",
				name, len(before), strings.Join(gone, " "))
		}
		p.line = p.line.With(name, values...)
	}
	for _, name := range p.o.Unset {
		if !p.line.Has(name) {
			p.refuse("--unset "+name, "leave it out", "%s does not have the flag", p.o.From)
		}
		p.line = p.line.Without(name)
	}
}

// without returns the elements of list that are not in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

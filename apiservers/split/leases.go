package split

import (
	"bytes"
	"embed"
	"strings"
	"text/template"
)

// Holder is who holds a Lease that a hold file was applied to. No process has that name, so nobody leads.
const Holder = "rota-split-hold"

// templates has the files that do not depend on the manifest.
//
//go:embed templates
var templates embed.FS

var parsed = template.Must(template.New("").Funcs(template.FuncMap{"join": strings.Join}).
	ParseFS(templates, "templates/*"))

// rbac lets kube-controller-manager use the new Leases. Kubernetes v1.36 allows it in kube-system already, for all
// Leases; other versions and namespaces do not.
func (p *Plan) rbac() File { return p.render("rbac.yaml", "rbac.yaml", p.leases()) }

// hold returns Leases that belong to nobody for ten years. A leader that finds its Lease so stops within its renew
// deadline, and no other begins until the Lease is deleted.
func (p *Plan) hold(name string, leases ...string) File { return p.render("hold.yaml", name, leases) }

// render fills in a template. That it fits is certain: a test writes all files.
func (p *Plan) render(template, name string, leases []string) File {
	var text bytes.Buffer
	if err := parsed.ExecuteTemplate(&text, template, map[string]any{
		"Header": header, "Holder": Holder, "Namespace": p.Namespace(), "Leases": leases,
	}); err != nil {
		panic(err)
	}
	return File{name, text.Bytes()}
}

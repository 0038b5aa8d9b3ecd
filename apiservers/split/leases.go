package split

import (
	"bytes"
	"embed"
	"strings"
	"text/template"
)

// Holder is the holder of a Lease to which a hold file was applied. No process has that name, so no process leads.
const Holder = "rota-split-hold"

// templates are the files that do not depend on the manifest.
//
//go:embed templates
var templates embed.FS

var parsed = template.Must(template.New("").Funcs(template.FuncMap{"join": strings.Join}).
	ParseFS(templates, "templates/*"))

// rbac allows kube-controller-manager to use the new Leases. Kubernetes v1.36 already allows all Leases in kube-system.
// Other versions and namespaces do not.
func (p *Plan) rbac() File { return p.render("rbac.yaml", "rbac.yaml", p.leases()) }

// hold returns Leases that are held by no process for ten years. A leader that finds its Lease held stops within its
// renew deadline, and no other process starts to lead until the Lease is deleted.
func (p *Plan) hold(name string, leases ...string) File { return p.render("hold.yaml", name, leases) }

// render fills in a template. The template always fits: a test writes all files.
func (p *Plan) render(template, name string, leases []string) File {
	var text bytes.Buffer
	if err := parsed.ExecuteTemplate(&text, template, map[string]any{
		"Header": header, "Holder": Holder, "Namespace": p.Namespace(), "Leases": leases,
	}); err != nil {
		panic(err)
	}
	return File{name, text.Bytes()}
}

package front

import (
	"bytes"
	"embed"
	"path"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// templates are the files of a front by name. The first line of each shows that `rota front` wrote it.
//
//go:embed templates
var templates embed.FS

var parsed = template.Must(template.New("").Funcs(template.FuncMap{
	"base": path.Base, "bind": bind, "serverID": ServerID, "staticID": StaticID, "weight": Server.weight,
	"span": func(d metav1.Duration) string { return span(d.Duration) }, "seconds": seconds, "socket": socket,
}).ParseFS(templates, "templates/*"))

// view is the data for the proxies' templates.
type view struct {
	*Front
	Backend, Unchecked, AdminSocket, MasterSocket string
	// Check is the check of a server by HAProxy, and Description the configuration that HAProxy has read. Connections
	// allows a few more than the clients', for metrics and health.
	Check, Description string
	Connections        int
	Servers            []Server
}

func (f *Front) view(servers []Server, description string) view {
	return view{f, Backend, Unchecked, AdminSocket, MasterSocket, f.check(), description,
		f.MaxConnections + 100, servers}
}

// render fills in the template of a file. The template always fits its data: a test writes all files.
func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := parsed.ExecuteTemplate(&b, name, data); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// renderYAML fills in a template, and returns its first line and its fields.
func renderYAML(name string, data any) (mark []byte, fields map[string]any, err error) {
	text := render(name, data)
	mark = text[:bytes.IndexByte(text, '\n')+1]
	return mark, fields, yaml.Unmarshal(text, &fields)
}

// isTemplate reports whether a line is the first line of a template.
func isTemplate(line []byte) bool {
	all, _ := templates.ReadDir("templates") // it is embedded
	for _, entry := range all {
		text, _ := templates.ReadFile("templates/" + entry.Name())
		if first, _, _ := bytes.Cut(text, []byte("\n")); bytes.Equal(first, line) {
			return true
		}
	}
	return false
}

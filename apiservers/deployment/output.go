package deployment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// A File is a file to write, with its path relative to a folder.
type File struct {
	Path string
	Text []byte
}

const header = "# Written by `rota apiservers`"

// Written reports whether `rota apiservers` wrote a file.
func Written(text []byte) bool { return bytes.Contains(text, []byte(header)) }

// Secrets is the folder of files that must be kept private. The others may be committed to a repository.
const Secrets = "secrets"

const namespaceFile = "manifests/00-namespace.yaml"

// Files returns the manifests. Those in Secrets contain keys.
func (p *Plan) Files() ([]File, error) {
	var files []File
	var err error
	add := func(name, comment string, objects ...any) {
		if err != nil || len(objects) == 0 {
			return
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s: %s\n", header, strings.ReplaceAll(comment, "\n", "\n# "))
		for i, o := range objects {
			var text []byte
			if text, err = document(o); err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				return
			}
			if i > 0 {
				b.WriteString("---\n")
			}
			b.Write(text)
		}
		files = append(files, File{name, b.Bytes()})
	}
	if p.o.Namespace != "kube-system" {
		// kubectl applies the files of a folder by name, and a namespace must come before its objects.
		add(namespaceFile, "the API servers have their own namespace.", p.object("namespace"))
	}
	if config := p.config(); config != nil {
		add("manifests/config.yaml", "configuration of the API servers that holds no credentials.", config)
	}
	add("manifests/deployment.yaml", deploymentComment, p.deployment())
	add("manifests/service.yaml", serviceComment, p.object("service"))
	add("manifests/disruptionbudget.yaml", "drains of nodes take one API server after the other.",
		p.object("disruptionbudget"))
	add("manifests/autoscaler.yaml", autoscalerComment, p.object("autoscaler"))
	if !p.o.ReferenceSecrets {
		var list []any
		for _, s := range p.secrets() {
			list = append(list, s)
		}
		add(Secrets+"/secrets.yaml", "certificates and KEYS of the API servers. Keep it out of repositories.", list...)
		files = append(files, File{Secrets + "/.gitignore", []byte(header + ": what is here holds keys.\n*\n")})
	}
	return files, err
}

// document writes an object without its status and empty fields.
func document(o any) ([]byte, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	return yaml.Marshal(prune(fields))
}

// prune removes empty fields, since some types always write them.
func prune(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			switch item := prune(item).(type) {
			case nil:
				delete(v, key)
			case map[string]any:
				if len(item) == 0 && (key == "resources" || key == "strategy") {
					delete(v, key)
				}
			}
		}
	case []any:
		for i := range v {
			v[i] = prune(v[i])
		}
	}
	return v
}

package charts

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/rota-dev/rota/test/golden"
	"github.com/rota-dev/rota/test/require"
)

// valueSchema is what this test needs of a JSON schema.
type valueSchema struct {
	Description          string
	Type                 any
	Enum                 []string
	Minimum, Maximum     *int64
	Properties           map[string]*valueSchema
	AdditionalProperties json.RawMessage
	Items                *valueSchema
}

// closed says whether the schema refuses properties that it does not list.
func (s *valueSchema) closed() bool { return string(s.AdditionalProperties) == "false" }

// walk calls do for each value that can be set, with its path.
func (s *valueSchema) walk(path string, do func(path string, s *valueSchema)) {
	for _, name := range sorted(s.Properties) {
		inner := s.Properties[name]
		if len(inner.Properties) > 0 {
			inner.walk(path+name+".", do)
			continue
		}
		do(path+name, inner)
	}
}

func readSchema(t *testing.T, chart string) (*valueSchema, map[string]any) {
	t.Helper()
	s, defaults := &valueSchema{}, map[string]any{}
	require.NoError(t, json.Unmarshal(read(t, "charts/"+chart+"/values.schema.json"), s))
	require.NoError(t, yaml.UnmarshalStrict(read(t, "charts/"+chart+"/values.yaml"), &defaults))
	return s, defaults
}

// at returns the value at a path.
func at(v any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[name]; !ok {
			return nil, false
		}
	}
	return v, true
}

// TestSchemas: every value is described, every object is closed, and every value has a default.
func TestSchemas(t *testing.T) {
	for _, chart := range []string{"rota", "website"} {
		s, defaults := readSchema(t, chart)
		var objects func(path string, s *valueSchema)
		objects = func(path string, s *valueSchema) {
			if !strings.HasSuffix(s.Description, ".") {
				t.Errorf("%s: %s has the description %q", chart, path, s.Description)
			}
			if len(s.Properties) > 0 && !s.closed() {
				t.Errorf("%s: %s accepts what it does not list", chart, path)
			}
			for _, name := range sorted(s.Properties) {
				objects(path+"."+name, s.Properties[name])
			}
			if s.Items != nil && len(s.Items.Properties) > 0 {
				objects(path+"[]", s.Items)
			}
		}
		objects("", s)
		s.walk("", func(path string, _ *valueSchema) {
			if _, ok := at(defaults, path); !ok && path != "global" {
				t.Errorf("%s: values.yaml has no %s", chart, path)
			}
		})
	}
}

// TestValuesInReadme: the table in each chart's README is that of its schema.
func TestValuesInReadme(t *testing.T) {
	for chart, prefix := range map[string]string{"rota": "rota.", "website": ""} {
		s, defaults := readSchema(t, chart)
		var table strings.Builder
		table.WriteString("| value | default | meaning |\n| --- | --- | --- |\n")
		s.walk("", func(path string, s *valueSchema) {
			if path == "global" || path == "rota" {
				return
			}
			value, _ := at(defaults, path)
			text, err := json.Marshal(value)
			require.NoError(t, err)
			about := s.Description
			if len(s.Enum) > 0 {
				about += " One of `" + strings.Join(s.Enum, "`, `") + "`."
			}
			fmt.Fprintf(&table, "| `%s%s` | `%s` | %s |\n", prefix, path, text, about)
		})
		readme := filepath.Join("charts", chart, "README.md")
		above, _, found := strings.Cut(string(read(t, readme)), "-->\n| value |")
		if !found {
			t.Fatalf("%s has no table of values", readme)
		}
		golden.File(t, filepath.Join(root, readme), above+"-->\n"+table.String())
	}
}

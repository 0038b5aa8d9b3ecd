package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/dispatch/wire"
	"github.com/rota-dev/rota/test/require"
)

// schema is what the document uses of JSON Schema.
type schema struct {
	Ref         string `json:"$ref"`
	Type        string
	Description string
	Required    []string
	Properties  map[string]schema
	// AdditionalProperties is false if unknown fields are refused.
	AdditionalProperties *bool
	Items                *schema
	AnyOf                []schema
	Minimum, Maximum     *float64
	MinItems, MaxItems   *int
	MinLength, MaxLength *int
	Enum, Examples       []string
	Format               string
}

type response struct {
	Ref         string `json:"$ref"`
	Description string
	Headers     map[string]any
	Content     map[string]struct{ Schema schema }
}

type operation struct {
	OperationID, Summary string
	Security             *[]any
	RequestBody          struct {
		Required bool
		Content  map[string]struct{ Schema schema }
	}
	Responses map[string]response
}

type document struct {
	OpenAPI    string
	Info       struct{ Title, Version, Description string }
	Security   []any
	Paths      map[string]map[string]operation
	Components struct {
		SecuritySchemes map[string]any
		Responses       map[string]response
		Schemas         map[string]schema
	}
}

func read(t *testing.T) (d document) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(wire.OpenAPI))
	decoder.DisallowUnknownFields() // the tests below would not see them
	require.NoError(t, decoder.Decode(&d))
	return d
}

// messages are the structs with a schema. Those of requests refuse unknown fields.
var messages = []any{
	wire.TakeRequest{}, wire.TakeResponse{}, wire.Take{}, wire.StreamRequest{}, wire.StreamEvent{}, wire.CreditRequest{},
	wire.DoneRequest{}, wire.DoneAllRequest{}, wire.DoneAllResponse{}, wire.DoneAnswer{}, wire.ExtendRequest{},
	wire.ExtendResponse{}, wire.ExtendAllRequest{}, wire.ExtendAllResponse{}, wire.ExtendAnswer{},
	wire.ReleaseRequest{}, wire.Stats{}, wire.KindStats{}, wire.Failing{}, wire.FailingKey{}, wire.Problem{},
}

const schemas = "#/components/schemas/"

// messages are the names of those that a schema refers to.
func (s schema) messages() string {
	var names []string
	for _, each := range append(s.AnyOf, s) {
		if each.Ref != "" {
			names = append(names, strings.TrimPrefix(each.Ref, schemas))
		}
	}
	return strings.Join(names, " or ")
}

// ofType is the schema of a Go type, without what reflection cannot tell.
func ofType(t reflect.Type) schema {
	switch t.Kind() {
	case reflect.String:
		return schema{Type: "string"}
	case reflect.Bool:
		return schema{Type: "boolean"}
	case reflect.Int:
		return schema{Type: "integer"}
	case reflect.Uint64:
		return schema{Type: "integer", Format: "uint64"}
	case reflect.Float64:
		return schema{Type: "number"}
	case reflect.Slice:
		items := ofType(t.Elem())
		return schema{Type: "array", Items: &items}
	case reflect.Pointer:
		return ofType(t.Elem())
	case reflect.Struct:
		return schema{Ref: schemas + t.Name()}
	default:
		panic(fmt.Sprintf("a message has a %s", t))
	}
}

// bare is a schema without what reflection cannot tell.
func bare(s schema) schema {
	out := schema{Ref: s.Ref, Type: s.Type, Format: s.Format}
	if s.Format == "uri" {
		out.Format = ""
	}
	if s.Items != nil {
		items := bare(*s.Items)
		out.Items = &items
	}
	return out
}

func TestSchemasAreTheMessages(t *testing.T) {
	d := read(t)
	names := map[string]bool{}
	for _, message := range messages {
		typ := reflect.TypeOf(message)
		names[typ.Name()] = true
		t.Run(typ.Name(), func(t *testing.T) {
			got, ok := d.Components.Schemas[typ.Name()]
			if !ok || got.Type != "object" || got.Description == "" {
				t.Fatal("there is no such object, or it has no description")
			}
			fields, want := map[string]schema{}, map[string]schema{}
			for name, s := range got.Properties {
				fields[name] = bare(s)
			}
			var required []string
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				want[name] = ofType(f.Type)
				if options != "omitempty" {
					required = append(required, name)
				}
			}
			if diff := cmp.Diff(want, fields); diff != "" {
				t.Errorf("fields (-struct +document):\n%s", diff)
			}
			if diff := cmp.Diff(required, got.Required); diff != "" {
				t.Errorf("required fields (-struct +document):\n%s", diff)
			}
			request := strings.HasSuffix(typ.Name(), "Request")
			if closed := got.AdditionalProperties != nil && !*got.AdditionalProperties; closed != request {
				t.Errorf("refuses unknown fields: %t, want %t", closed, request)
			}
		})
	}
	for name := range d.Components.Schemas {
		if !names[name] {
			t.Errorf("schema %s is of no message", name)
		}
	}
}

func TestLimitsAreInTheDocument(t *testing.T) {
	d := read(t)
	for _, c := range []struct {
		message, field string
		want           float64
	}{
		{"TakeRequest", "max", wire.MaxKeys}, {"TakeRequest", "waitSeconds", wire.MaxWaitSeconds},
		{"StreamRequest", "credit", wire.MaxKeys}, {"CreditRequest", "credit", wire.MaxKeys},
	} {
		if got := d.Components.Schemas[c.message].Properties[c.field].Maximum; got == nil || *got != c.want {
			t.Errorf("%s.%s: maximum %v, want %v", c.message, c.field, got, c.want)
		}
	}
	for _, message := range []string{"TakeRequest", "StreamRequest"} {
		got := d.Components.Schemas[message].Properties["worker"]
		if got.MaxLength == nil || *got.MaxLength != wire.MaxWorker {
			t.Errorf("%s.worker: maximum length %v, want %d", message, got.MaxLength, wire.MaxWorker)
		}
	}
	for _, message := range []string{"DoneAllRequest", "ExtendAllRequest"} {
		got := d.Components.Schemas[message].Properties["takes"]
		if got.MinItems == nil || *got.MinItems != 1 || got.MaxItems == nil || *got.MaxItems != wire.MaxTakes {
			t.Errorf("%s.takes: from %v to %v, want from 1 to %d", message, got.MinItems, got.MaxItems, wire.MaxTakes)
		}
	}
	results := d.Components.Schemas["DoneRequest"].Properties["result"].Enum
	if diff := cmp.Diff([]string{wire.ResultOK, wire.ResultRetry}, results); diff != "" {
		t.Errorf("results (-constants +document):\n%s", diff)
	}
}

// constants are the string constants of this package with a prefix, by their names.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range []string{"problem.go", "wire.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if ok && strings.HasPrefix(spec.Names[0].Name, prefix) {
				out[spec.Names[0].Name], err = strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			}
			return err == nil
		})
		require.NoError(t, err)
	}
	return out
}

func TestProblemsAreInTheDocument(t *testing.T) {
	d := read(t)
	var want []string
	described := &bytes.Buffer{}
	for _, r := range d.Components.Responses {
		fmt.Fprintln(described, r.Description)
		if diff := cmp.Diff([]string{wire.TypeProblem}, slices.Collect(maps.Keys(r.Content))); diff != "" {
			t.Errorf("a problem's type (-want +document):\n%s", diff)
		}
	}
	for name, problem := range constants(t, "Problem") {
		if name == "ProblemBase" {
			continue
		}
		want = append(want, wire.ProblemBase+problem)
		if !strings.Contains(described.String(), problem+": ") {
			t.Errorf("no response describes %s", problem)
		}
	}
	got := d.Components.Schemas["Problem"].Properties["type"].Examples
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types of problems (-constants +document):\n%s", diff)
	}
	for _, status := range []string{"TooMany", "Unavailable"} {
		if d.Components.Responses[status].Headers["Retry-After"] == nil {
			t.Errorf("%s: no Retry-After", status)
		}
	}
}

func TestPathsAreInTheDocument(t *testing.T) {
	d := read(t)
	if d.OpenAPI != "3.1.1" || d.Info.Version != "1" {
		t.Errorf("OpenAPI %s, version %s of the protocol", d.OpenAPI, d.Info.Version)
	}
	var want []string
	for _, path := range constants(t, "Path") {
		want = append(want, path)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(d.Paths))); diff != "" {
		t.Fatalf("paths (-constants +document):\n%s", diff)
	}
	// What each answers: the type of its content, and the message.
	type answer struct{ content, message string }
	for _, c := range []struct {
		path, method, request, status string
		answer                        answer
	}{
		{wire.PathTake, "post", "TakeRequest", "200", answer{wire.TypeJSON, "TakeResponse"}},
		{wire.PathStream, "post", "StreamRequest", "200", answer{wire.TypeStream, "StreamEvent"}},
		{wire.PathCredit, "post", "CreditRequest", "204", answer{}},
		{wire.PathDone, "post", "DoneRequest or DoneAllRequest", "204", answer{}},
		{wire.PathDone, "post", "DoneRequest or DoneAllRequest", "200", answer{wire.TypeJSON, "DoneAllResponse"}},
		{wire.PathExtend, "post", "ExtendRequest or ExtendAllRequest", "200",
			answer{wire.TypeJSON, "ExtendResponse or ExtendAllResponse"}},
		{wire.PathRelease, "post", "ReleaseRequest", "204", answer{}},
		{wire.PathStats, "get", "", "200", answer{wire.TypeJSON, "Stats"}},
		{wire.PathFailing, "get", "", "200", answer{wire.TypeJSON, "Failing"}},
		{wire.PathOpenAPI, "get", "", "200", answer{wire.TypeJSON, ""}},
	} {
		methods := d.Paths[c.path]
		if len(methods) != 1 {
			t.Errorf("%s has %d methods, want %s only", c.path, len(methods), c.method)
		}
		op := methods[c.method]
		request := ""
		if body, ok := op.RequestBody.Content[wire.TypeJSON]; ok {
			request = body.Schema.messages()
		}
		if request != c.request || op.RequestBody.Required != (c.request != "") {
			t.Errorf("%s takes %q, want %q", c.path, request, c.request)
		}
		var got answer
		for content, body := range op.Responses[c.status].Content {
			got = answer{content, body.Schema.messages()}
		}
		if got != c.answer || op.Responses[c.status].Description == "" {
			t.Errorf("%s answers %v with %s, want %v", c.path, got, c.status, c.answer)
		}
		if open := op.Security != nil && len(*op.Security) == 0; open != (c.path == wire.PathOpenAPI) {
			t.Errorf("%s needs no token: %t", c.path, open)
		}
	}
}

// TestReferences: each leads to something.
func TestReferences(t *testing.T) {
	d := read(t)
	found := regexp.MustCompile(`"\$ref": "#/components/(schemas|responses)/(\w+)"`).FindAllStringSubmatch(wire.OpenAPI, -1)
	if all := strings.Count(wire.OpenAPI, `"$ref"`); all == 0 || len(found) != all {
		t.Errorf("%d of %d references lead to schemas and responses", len(found), all)
	}
	for _, m := range found {
		_, schema := d.Components.Schemas[m[2]]
		_, response := d.Components.Responses[m[2]]
		if m[1] == "schemas" && !schema || m[1] == "responses" && !response {
			t.Errorf("%s leads to nothing", m[0])
		}
	}
}

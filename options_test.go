package rota

import (
	"flag"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/engine"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func TestFlagsFillTheOptions(t *testing.T) {
	o := Options{Name: "website", Namespace: "operators"}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	o.BindFlags(flags)
	err := flags.Parse([]string{"--rota-pod=web-1", "--rota-build=v2", "--rota-lease-duration=6s"})
	require.NoError(t, err)
	want := Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-1", Build: "v2"},
		LeaseDuration: 6 * time.Second}
	if o.Namespace != want.Namespace || o.Identity != want.Identity || o.LeaseDuration != want.LeaseDuration {
		t.Errorf("options %+v, want %+v", o, want)
	}
}

// Every duration has a flag, so that it can be changed without a build.
func TestDurationsHaveFlags(t *testing.T) {
	var o Options
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	o.BindFlags(flags)
	durations := 0
	for i := range reflect.TypeFor[Options]().NumField() {
		if v, ok := reflect.ValueOf(&o).Elem().Field(i).Addr().Interface().(*time.Duration); ok {
			field := reflect.TypeFor[Options]().Field(i).Name
			name := "rota" + strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(field, "-$0"))
			durations++
			if err := flags.Parse([]string{"--" + name + "=7s"}); err != nil || *v != 7*time.Second {
				t.Errorf("--%s: %v, %v", name, *v, err)
			}
		}
	}
	if durations != 7 {
		t.Errorf("%d durations, want 7", durations)
	}
}

func TestLabelNamespacesHaveAFlag(t *testing.T) {
	var o Options
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	o.BindFlags(flags)
	if err := flags.Parse([]string{"--rota-label-namespaces=team-a,team-b"}); err != nil ||
		!slices.Equal(o.LabelNamespaces, []string{"team-a", "team-b"}) {
		t.Errorf("namespaces %q, error %v", o.LabelNamespaces, err)
	}
}

// Every option reaches the engine, and every field of its status comes back.
func TestFieldsAreCopied(t *testing.T) {
	options := reflect.TypeFor[Options]()
	for i := range options.NumField() {
		var o Options
		fill(t, reflect.ValueOf(&o).Elem().Field(i))
		if to := o.engine(); reflect.ValueOf(to).FieldByName(options.Field(i).Name).IsZero() {
			t.Errorf("Options.%s does not reach the engine", options.Field(i).Name)
		}
	}
	status := reflect.TypeFor[engine.Status]()
	for i := range status.NumField() {
		var s engine.Status
		fill(t, reflect.ValueOf(&s).Elem().Field(i))
		if f := reflect.ValueOf(statusOf(s)).FieldByName(status.Field(i).Name); !f.IsValid() || f.IsZero() {
			t.Errorf("Status.%s is lost", status.Field(i).Name)
		}
	}
}

// fill sets a value that is not zero.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint64:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	default:
		for _, known := range []any{
			slot.SetOf(slot.Range{First: 1, Last: 1}), noop.NewTracerProvider(), funcr.New(func(_, _ string) {}, funcr.Options{}),
			Identity{Pod: "x"}, coverage.Health{Failing: 1},
		} {
			if reflect.TypeOf(known).AssignableTo(v.Type()) {
				v.Set(reflect.ValueOf(known))
				return
			}
		}
		t.Fatalf("no value of %v", v.Type())
	}
}

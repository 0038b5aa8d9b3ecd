package streamtest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rota-dev/rota/internal/delivery/stream"
)

// Small worlds are searched to the end: nothing goes wrong, one in 7 of the states is shown to come to rest, and every
// kind of act occurs. Larger ones begin well.
func TestScopes(t *testing.T) {
	var counts [kinds]int
	for _, sc := range Scopes {
		t.Run(sc.Name, func(t *testing.T) {
			limit := 100_000
			if sc.Long || testing.Short() {
				limit = 1000
			}
			s := NewSearch(sc)
			s.Run(limit, 7)
			t.Log(s)
			if s.Found != nil {
				t.Fatalf("%v\n%s", s.Found, s.Script())
			}
			if !s.Fixpoint && limit > 1000 {
				t.Errorf("there are more than %d states", limit)
			}
			for k, n := range s.Counts {
				counts[k] += n
			}
		})
	}
	for k, n := range counts {
		if k := kind(k); n == 0 && k != rest && k != wait {
			t.Errorf("%v never happened", k)
		}
	}
}

// Worlds with the same fingerprint go on in the same way.
func TestFingerprint(t *testing.T) {
	for _, name := range []string{"renew", "move", "look", "whole"} {
		sc, _ := ScopeOf(name)
		s := NewSearch(sc)
		s.Run(1000, 1000)
		known := map[digest][]digest{}
		again := 0
		for i := range min(s.next, 500) {
			path := slices.Clone(s.path(uint32(i)))
			for _, a := range sc.acts(s.at(path), nil) {
				way := append(slices.Clone(path), a)
				n := s.at(way)
				is, leads := s.encoder.digest(n.world, n.used[:]), s.leads(way)
				if was, ok := known[is]; ok {
					again++
					if !slices.Equal(was, leads) {
						t.Fatalf("%s: %v leads to a known world, and elsewhere from there", name, way)
					}
				}
				known[is] = leads
			}
		}
		if again < 300 {
			t.Errorf("%s: only %d worlds came again", name, again)
		}
	}
}

// leads returns what may come next after some acts.
func (s *Search) leads(path []act) []digest {
	var out []digest
	for _, a := range s.Scope.acts(s.at(path), nil) {
		n := s.at(append(slices.Clone(path), a))
		out = append(out, s.encoder.digest(n.world, n.used[:]))
	}
	slices.SortFunc(out, func(a, b digest) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

// There is a field for every name that means something.
func TestMeanings(t *testing.T) {
	there := map[string]bool{}
	var note func(reflect.Type)
	note = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice:
			note(of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				f := of.Field(i)
				if there[f.Name] {
					continue
				}
				there[f.Name] = true
				note(f.Type)
			}
		default:
		}
	}
	for _, of := range []any{stream.Stream{}, stream.List{}, stream.Task{}, stream.Settling{}} {
		note(reflect.TypeOf(of))
	}
	for name := range meanings {
		if !there[name] {
			t.Errorf("there is no field %s", name)
		}
	}
}

// A script reads as it was written.
func TestParse(t *testing.T) {
	for _, sc := range Scopes {
		s := NewSearch(sc)
		s.Run(100, 1000)
		for i := range s.ways {
			s.By = append(s.By, s.ways[i].by)
		}
		s.By = slices.DeleteFunc(s.By, func(a act) bool { return a.kind == rest })
		if _, err := parse(sc.Begin); err != nil {
			t.Error(err)
		}
		_, text, _ := strings.Cut(s.Script(), "\n")
		acts, err := parse(text)
		if err != nil || !slices.Equal(acts, s.By) {
			t.Errorf("%s: %d of %d acts are read, %v", sc.Name, len(acts), len(s.By), err)
		}
	}
}

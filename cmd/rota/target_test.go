package main

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// A rota that there is not is compared with those that there are.
func TestNamesElsewhere(t *testing.T) {
	rota := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ops", Name: name} }
	var many []types.NamespacedName
	for i := range maxElsewhere + 2 {
		many = append(many, rota(fmt.Sprint("rota-", i)))
	}
	for _, c := range []struct {
		found []types.NamespacedName
		name  string
		want  string
	}{
		{[]types.NamespacedName{rota("mailer"), rota("website")}, "websit",
			". Did you mean ops/website? There are rotas ops/mailer, ops/website"},
		{[]types.NamespacedName{rota("website")}, "mailer", ". There are rotas ops/website"},
		{many, "other", " and 2 more"},
	} {
		if got := namesElsewhere(c.found, rota(c.name)); !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

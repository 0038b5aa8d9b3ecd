package feed

import (
	"errors"
	"strings"
	"testing"
)

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		versions []string
		wrong    string
	}{
		{[]string{"", "7", "16354", "12345678901234567890123", ""}, ""},
		{[]string{"16354/", "1655/", "99/"}, ""},
		{[]string{"16354/1", "16354/2"}, `"16354/1" and "16354/2"`},
		{[]string{"16354", "16354/"}, `"16354" and "16354/"`},
		{[]string{"", "c2f1"}, `"c2f1"`},
		{[]string{"1c2f", "2a6b"}, `"1c2f" and "2a6b"`},
	} {
		var o order
		var err error
		for _, v := range c.versions {
			err = errors.Join(err, o.check(configMapKind, v))
		}
		if (err == nil) != (c.wrong == "") || err != nil &&
			(!strings.Contains(err.Error(), c.wrong) || !strings.Contains(err.Error(), "ConfigMap")) {
			t.Errorf("%q: %v, want %q", c.versions, err, c.wrong)
		}
	}
}

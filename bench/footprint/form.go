package footprint

import (
	"fmt"
	"strings"

	"github.com/rota-dev/rota/internal/delivery/sharding"
)

// Form is how an operator is run: stock, or with Rota and a delivery.
type Form string

// Stock is leader election as controller-runtime has it.
const Stock Form = "stock"

// forms are the deliveries of Rota.
var forms = []struct {
	form Form
	kind sharding.Mode
}{{"filter", sharding.Filter}, {"slot-label", sharding.SlotLabel}, {"shard-selector", sharding.ShardSelector}}

// ParseForm returns the delivery of that name; Stock is none.
func ParseForm(name string) (Form, error) {
	names := make([]string, 0, len(forms))
	for _, f := range forms {
		if string(f.form) == name {
			return f.form, nil
		}
		names = append(names, string(f.form))
	}
	return "", fmt.Errorf("delivery %q: must be one of %s", name, strings.Join(names, ", "))
}

// delivery returns the mode of delivery, ModeUnknown for Stock.
func (f Form) delivery() sharding.Mode {
	for _, known := range forms {
		if known.form == f {
			return known.kind
		}
	}
	return sharding.ModeUnknown
}

// Title is what tables call the form.
func (f Form) Title() string {
	if f == Stock {
		return "leader election"
	}
	return f.delivery().String()
}

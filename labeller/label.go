package labeller

import (
	"strconv"
	"strings"
	"sync"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/store"
)

// Label is the label that every object of a kind carries that is sharded by name. Its value is what Value returns: it depends neither
// on the members nor on the number of slots, so that it is written once in an object's life and serves all rotas.
const Label = store.LabelHash

// FieldManager is the manager of the label in metadata.managedFields, and of nothing else.
const FieldManager = "rota-labeller"

// Value returns the label's value for an object: the top 12 bits of its key's hash, a decimal number from 0 to 4095.
// namespace is empty for cluster-scoped objects. key is slot.KeyName or slot.KeyNamespace.
func Value(key slot.Key, namespace, name string) string {
	return slot.Count(slot.MaxCount).Of(key.Hash(namespace, name, "")).String()
}

// missing returns the selector of the objects without the label.
func (l *Labeller) missing() string { return "!" + l.opts.Label }

// malformed returns the selector of the objects without the label or with a value that is none. It is 19 KB long, 27
// in a URL.
func (l *Labeller) malformed() string { return l.opts.Label + values() }

var values = sync.OnceValue(func() string {
	var b strings.Builder
	b.WriteString(" notin (")
	for v := range slot.MaxCount {
		if v > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(v))
	}
	b.WriteByte(')')
	return b.String()
})

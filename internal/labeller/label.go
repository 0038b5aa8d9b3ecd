package labeller

import (
	"strconv"
	"strings"
	"sync"

	"github.com/rota-dev/rota/slot"
)

// FieldManager is the manager of the label, and only of the label, in metadata.managedFields.
const FieldManager = "rota-labeller"

// Value returns the default value of an object's label: the top 12 bits of its key's hash as a decimal number from 0 to
// 4095. namespace is empty for cluster-scoped objects. key is slot.KeyName or slot.KeyNamespace.
func Value(key slot.Key, namespace, name string) string {
	return slot.Count(slot.MaxCount).Of(key.Hash(namespace, name, "")).String()
}

// missing returns the selector of the objects without the label.
func (l *Labeller) missing() string { return "!" + l.opts.Label }

// malformed returns the selector of objects without the label or with a malformed value. It is 19 KB long, 27 KB in a
// URL.
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

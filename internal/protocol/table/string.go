package table

import (
	"fmt"
	"strings"
)

// String returns the table in one line, for traces: its epoch, UID, members and runs.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch=%d uid=%s members=", t.Epoch, t.UID)
	for _, m := range t.Members {
		b.WriteString(m.ID)
		if m.Leaving {
			b.WriteString("(leaving)")
		}
		b.WriteByte(',')
	}
	text := Encode(t)
	b.WriteString(" runs=" + oneLine(text[fieldRuns]))
	if duties := text[fieldDuties]; duties != "" {
		b.WriteString(" duties=" + oneLine(duties) + " able=" + oneLine(text[fieldAble]))
	}
	if orders := text[fieldOrders]; orders != "" {
		b.WriteString(" orders=" + oneLine(orders))
	}
	for _, field := range []string{fieldPins, fieldLabels} {
		if lines := text[field]; lines != "" {
			b.WriteString(" " + field + "=" + oneLine(lines))
		}
	}
	if t.Older != 0 {
		b.WriteString(" older=" + text[fieldOlder])
	}
	b.WriteString(" notes=" + oneLine(text[fieldNotes]))
	return b.String()
}

func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }

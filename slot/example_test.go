package slot_test

import (
	"fmt"

	"github.com/rota-dev/rota/slot"
)

func Example() {
	// The slot of an object follows from its name and the number of slots of the rota alone.
	count := slot.Count(slot.DefaultCount)
	s := count.Of(slot.KeyName.Hash("team-a", "website", ""))

	mine := slot.SetOf(slot.Range{First: 0, Last: 84}, slot.Range{First: 128, Last: 255})
	fmt.Println(s, mine.Has(s), mine)
	// Output: 145 true 0-84,128-255
}

package dispatch

import (
	"fmt"
	"strings"
	"time"
)

const mega = 1e6

// dispatchers is how many there are in the table of costs.
const dispatchers = 3

// Markdown returns tables of the results.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString("| objects | heap while listing, garbage included | live heap, all keys pending | live heap at rest | " +
		"takes per second | processor time per take and done |\n| ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, m := range r.Memory {
		fmt.Fprintf(&b, "| %d | %.1f MB | %.1f MB | %.1f MB | %.0f | %v |\n", m.Objects, float64(m.Listing)/mega,
			float64(m.Pending)/mega, float64(m.Rest)/mega, m.Rate, m.Each.Round(time.Microsecond))
	}
	b.WriteString("\n| | who hears of a change | changes | p50 | p99 |\n| --- | --- | ---: | ---: | ---: |\n")
	for _, l := range r.Latency {
		fmt.Fprintf(&b, "| %s | %s | %d | %.1f ms | %.1f ms |\n", l.How, l.Who, l.Count, ms(l.P50), ms(l.P99))
	}
	c := r.Costs
	fmt.Fprintf(&b, "\nProcessor time of the API server: a read %v, a read with resourceVersion %v, an event to one "+
		"watcher of whole objects %v, of metadata %v.\n\n", c.Get.Round(time.Microsecond), c.Cached.Round(time.Microsecond),
		c.Event.Round(time.Microsecond), c.Metadata.Round(time.Microsecond))
	fmt.Fprintf(&b, "| replicas with a cache | reads per change up to which %d dispatchers are cheaper | the "+
		"same, reading with `resourceVersion` |\n| ---: | ---: | ---: |\n", dispatchers)
	for _, n := range []int{3, 10, 30, 100} {
		fmt.Fprintf(&b, "| %d | %s | %s |\n", n, c.reads(n, c.Get), c.reads(n, c.Cached))
	}
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// reads is how many reads of an object, for each change, cost the API server as much as the difference between sending
// the change to n members and to the dispatchers.
func (c Costs) reads(n int, read time.Duration) string {
	return fmt.Sprintf("%.1f", max(float64(time.Duration(n)*c.Event-dispatchers*c.Metadata)/float64(read), 0))
}

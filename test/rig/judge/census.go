package judge

import (
	"fmt"
	"maps"
	"slices"
)

// Census is what there is of a rota while nothing happens.
type Census struct {
	// Leases and Reports are the names of the members' objects.
	Leases, Reports []string
	// Members are the Pods in the table; Live are those that should be there.
	Members, Live []string
	// Goroutines and Watches are counted for each Pod; watches are those of its connection to the API server.
	Goroutines, Watches map[string]int
}

const (
	// moreGoroutines and moreWatches are by how much members may differ: those that plan watch more than others.
	moreGoroutines, moreWatches = 100, 4
)

// leaks says what there is that should not be.
func leaks(before, after Census) []string {
	var out []string
	if n, want := len(after.Leases), len(after.Live); n != want {
		out = append(out, fmt.Sprintf("%d Leases of %d members: %q", n, want, after.Leases))
	}
	if n, want := len(after.Reports), len(after.Live); n != want {
		out = append(out, fmt.Sprintf("%d reports of %d members: %q", n, want, after.Reports))
	}
	members, live := slices.Sorted(slices.Values(after.Members)), slices.Sorted(slices.Values(after.Live))
	if !slices.Equal(members, live) {
		out = append(out, fmt.Sprintf("members %q in the table, but %q live", members, after.Live))
	}
	return append(out, append(
		more("goroutines", before.Goroutines, after.Goroutines, moreGoroutines),
		more("watches", before.Watches, after.Watches, moreWatches)...)...)
}

// more says which members have more of something than the one that had most of it at first.
func more(what string, before, after map[string]int, margin int) []string {
	if len(before) == 0 {
		return nil
	}
	most := slices.Max(slices.Collect(maps.Values(before)))
	var out []string
	for _, pod := range slices.Sorted(maps.Keys(after)) {
		if n := after[pod]; n > most+margin {
			out = append(out, fmt.Sprintf("%s has %d %s; at first no member had more than %d", pod, n, what, most))
		}
	}
	return out
}

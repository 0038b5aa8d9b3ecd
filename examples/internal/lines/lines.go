// Package lines compares the two forms of an example line by line.
package lines

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Few fails the test if sharded/main.go has more than most lines that stock/main.go does not have, if more are left
// out than gone, or if README.md does not show the added ones.
func Few(tb testing.TB, most, gone int) {
	tb.Helper()
	stock, sharded, readme := read(tb, "stock/main.go"), read(tb, "sharded/main.go"), read(tb, "README.md")
	added := beyond(stock, sharded)
	if len(added) > most {
		tb.Errorf("%d lines of sharded/main.go are not in stock/main.go, want at most %d:\n%s",
			len(added), most, strings.Join(added, "\n"))
	}
	if left := beyond(sharded, stock); len(left) > gone {
		tb.Errorf("%d lines of stock/main.go are not in sharded/main.go, want at most %d:\n%s",
			len(left), gone, strings.Join(left, "\n"))
	}
	for _, line := range added {
		if !slices.Contains(readme, "+"+line) {
			tb.Errorf("README.md does not show the line %q", "+"+line)
		}
	}
}

func read(tb testing.TB, path string) []string {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// beyond returns the lines of b that a longest common subsequence of both does not have.
func beyond(a, b []string) []string {
	best := make([][]int, len(a)+1)
	for i := range best {
		best[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if a[i] == b[j] {
				best[i][j] = best[i+1][j+1] + 1
			}
		}
	}
	var out []string
	for i, j := 0, 0; j < len(b); {
		switch {
		case i < len(a) && a[i] == b[j]:
			i, j = i+1, j+1
		case i < len(a) && best[i+1][j] >= best[i][j+1]:
			i++
		default:
			out = append(out, b[j])
			j++
		}
	}
	return out
}

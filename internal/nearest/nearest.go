// Package nearest suggests the name that a user meant.
package nearest

import "fmt"

// Of returns the name that takes the fewest edits to become text, the first one if several do, or "" without names.
func Of(text string, names []string) string {
	best, least := "", -1
	for _, name := range names {
		if d := Distance(text, name); least < 0 || d < least {
			best, least = name, d
		}
	}
	return best
}

// Hint returns the end of a message about an unknown name. It is empty if there are no names.
func Hint(text string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; the nearest is %s", Of(text, names))
}

// Distance returns the Levenshtein distance of two strings: how many bytes must be changed, added or removed.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

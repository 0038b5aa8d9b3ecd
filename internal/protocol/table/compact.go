package table

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A table with more than longFormUpTo members is written with abbreviations for what is repeated in each line:
//
//	base: "1763712000"    +142 stands for base+142, in joined and in the epochs of runs
//	names: |              letter prefix; a~x7k2p-k3j9x stands for web-7d9f8b6c5d-x7k2p-k3j9x
//	  a web-7d9f8b6c5d-
//	classes: |            letter container build weight formats
//	  a manager v1.7.0 1 1-1
//	members: |            ID class joined [leaving]; the pod is the ID without its last part
//	  a~x7k2p-k3j9x a +142
//	runs: |
//	  0-3 a~x7k2p-k3j9x +20
//	podUIDs: u1 u2 - u4   in the order of the members; - for none
//
// A member that does not fit keeps its long line. A table of 1,000 members and 4,096 slots takes 47 KB, plus 37 KB of
// POD_UIDs, instead of 128.
const longFormUpTo = 64

// longRunsUpTo is the same limit for runs: many slots that move one by one make many runs.
const longRunsUpTo = 1024

const (
	fieldBase    = "base"
	fieldNames   = "names"
	fieldClasses = "classes"
)

// abbreviations maps letters to what they stand for. A nil value abbreviates nothing.
type abbreviations struct {
	base     uint64
	prefixes map[string]string // letter to prefix
	letters  map[string]string // prefix to letter
	classes  map[string]Member // letter to the members' common columns
	class    map[Member]string // and back
}

func newAbbreviations() *abbreviations {
	return &abbreviations{
		prefixes: map[string]string{}, letters: map[string]string{}, classes: map[string]Member{}, class: map[Member]string{},
	}
}

// abbreviate chooses abbreviations for the prefixes and classes that are most frequent in the table.
func abbreviate(t *Table) *abbreviations {
	if len(t.Members) <= longFormUpTo && len(t.Runs) <= longRunsUpTo {
		return nil
	}
	a := newAbbreviations()
	prefixes, classes := map[string]int{}, map[Member]int{}
	a.base = math.MaxUint64
	for _, m := range t.Members {
		if pod, ok := podOf(m.ID); ok && pod == m.Pod {
			prefixes[m.ID[:strings.LastIndexByte(pod, '-')+1]]++
			classes[classOf(m)]++
		}
		if m.Joined > 0 {
			a.base = min(a.base, uint64(m.Joined))
		}
	}
	for _, r := range t.Runs {
		if r.Epoch > 0 {
			a.base = min(a.base, r.Epoch)
		}
	}
	if a.base == math.MaxUint64 {
		a.base = 0
	}
	delete(prefixes, "")
	for letter, prefix := range frequent(prefixes, strings.Compare) {
		a.prefixes[letter], a.letters[prefix] = prefix, letter
	}
	byWords := func(x, y Member) int { return strings.Compare(classWords(x), classWords(y)) }
	for letter, class := range frequent(classes, byWords) {
		a.classes[letter], a.class[class] = class, letter
	}
	return a
}

// frequent assigns letters to the most frequent keys.
func frequent[K comparable](counts map[K]int, compare func(a, b K) int) map[string]K {
	keys := make([]K, 0, len(counts))
	for key := range counts {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(x, y K) int {
		if counts[x] != counts[y] {
			return counts[y] - counts[x]
		}
		return compare(x, y)
	})
	out := map[string]K{}
	for i, key := range keys[:min(len(keys), 26)] {
		out[string(rune('a'+i))] = key
	}
	return out
}

// podOf returns an ID without its last part.
func podOf(id string) (string, bool) {
	i := strings.LastIndexByte(id, '-')
	return id[:max(i, 0)], i > 0
}

// classOf returns the columns of a member that it shares with others.
func classOf(m Member) Member {
	return Member{Container: m.Container, Build: m.Build, Weight: m.Weight, MinFormat: m.MinFormat, MaxFormat: m.MaxFormat}
}

func classWords(m Member) string {
	return fmt.Sprintf("%s %s %d %d-%d", orNone(m.Container), orNone(m.Build), m.Weight, m.MinFormat, m.MaxFormat)
}

// name abbreviates an ID.
func (a *abbreviations) name(id string) string {
	if a == nil {
		return id
	}
	if pod, ok := podOf(id); ok {
		prefix := id[:strings.LastIndexByte(pod, '-')+1]
		if letter, ok := a.letters[prefix]; ok {
			return letter + "~" + id[len(prefix):]
		}
	}
	return id
}

// number abbreviates an epoch or a time.
func (a *abbreviations) number(n int64) string {
	if a != nil && n > 0 && uint64(n) >= a.base {
		return "+" + strconv.FormatUint(uint64(n)-a.base, 10)
	}
	return formatInt(n)
}

// short returns a member's short line, without "leaving", or false if the member needs a long line.
func (a *abbreviations) short(m Member) (string, bool) {
	if a == nil {
		return "", false
	}
	letter, known := a.class[classOf(m)]
	pod, ok := podOf(m.ID)
	return a.name(m.ID) + " " + letter + " " + a.number(m.Joined), known && ok && pod == m.Pod
}

// fields adds the fields that define the letters.
func (a *abbreviations) fields(data map[string]string) {
	if a == nil {
		return
	}
	var names, classes strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		if prefix, ok := a.prefixes[string(c)]; ok {
			fmt.Fprintf(&names, "%c %s\n", c, prefix)
		}
		if class, ok := a.classes[string(c)]; ok {
			fmt.Fprintf(&classes, "%c %s\n", c, classWords(class))
		}
	}
	data[fieldBase] = strconv.FormatUint(a.base, 10)
	data[fieldNames], data[fieldClasses] = names.String(), classes.String()
}

// abbreviations parses what fields wrote. It returns nil if the table is not abbreviated.
func (d *decoder) abbreviations() *abbreviations {
	if _, ok := d.data[fieldBase]; !ok {
		return nil
	}
	a := newAbbreviations()
	a.base = d.uint(fieldBase)
	d.lines(fieldNames, func(w []string) error {
		if len(w) != 2 {
			return fmt.Errorf("%q: want letter prefix", strings.Join(w, " "))
		}
		a.prefixes[w[0]] = w[1]
		return nil
	})
	d.lines(fieldClasses, func(w []string) error {
		if len(w) != 5 {
			return fmt.Errorf("%q: want letter container build weight formats", strings.Join(w, " "))
		}
		var m Member
		err := parseClass(&m, w[1:])
		a.classes[w[0]] = m
		return err
	})
	return a
}

// expand undoes name.
func (a *abbreviations) expand(word string) (string, error) {
	letter, rest, short := strings.Cut(word, "~")
	if !short {
		return orEmpty(word), nil
	}
	if a != nil {
		if prefix, ok := a.prefixes[letter]; ok {
			return prefix + rest, nil
		}
	}
	return "", fmt.Errorf("%q: field %s has no %q", word, fieldNames, letter)
}

// parse undoes number.
func (a *abbreviations) parse(word string) (int64, error) {
	rest, short := strings.CutPrefix(word, "+")
	if !short {
		return strconv.ParseInt(word, 10, 64)
	}
	n, err := strconv.ParseUint(rest, 10, 63)
	switch {
	case err != nil:
		return 0, err
	case a == nil:
		return 0, fmt.Errorf("%q: there is no field %s", word, fieldBase)
	case n > math.MaxInt64-a.base:
		return 0, fmt.Errorf("%q: too large", word)
	}
	return int64(a.base + n), nil
}

// parseShort reads a short line.
func (a *abbreviations) parseShort(w []string, podUID string) (Member, error) {
	m, ok := a.classes[w[1]]
	if !ok {
		return Member{}, fmt.Errorf("field %s has no %q", fieldClasses, w[1])
	}
	var err error
	if m.ID, err = a.expand(w[0]); err != nil {
		return Member{}, err
	}
	if m.Pod, ok = podOf(m.ID); !ok {
		return Member{}, fmt.Errorf("%q: the ID has no last part", m.ID)
	}
	if m.Joined, err = a.parse(w[2]); err != nil {
		return Member{}, err
	}
	m.PodUID, m.Leaving = orEmpty(podUID), len(w) == 4
	return m, nil
}

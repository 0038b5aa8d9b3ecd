package digest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rota-dev/rota/examples/notify/notice"
)

const (
	// mostObjects are named in a digest, and mostNamespaces.
	mostObjects    = 20
	mostNamespaces = 20
)

// survey sums up what fails. It holds counts of each namespace, and no more objects than a digest names.
type survey struct {
	failing    int
	namespaces map[string]*notice.Count
	oldest     []notice.Failure // in order
}

func (s *survey) add(f notice.Failure) {
	s.failing++
	if s.namespaces == nil {
		s.namespaces = map[string]*notice.Count{}
	}
	c := s.namespaces[f.Object.Namespace]
	if c == nil {
		c = &notice.Count{Namespace: f.Object.Namespace, Reasons: map[string]int{}}
		s.namespaces[f.Object.Namespace] = c
	}
	c.Failing++
	c.Reasons[f.Reason]++
	at, _ := slices.BinarySearchFunc(s.oldest, f, func(a, b notice.Failure) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object.String(), b.Object.String()))
	})
	if at < mostObjects {
		s.oldest = slices.Insert(s.oldest[:min(len(s.oldest), mostObjects-1)], at, f)
	}
}

// summary says how much it leaves out.
func (s *survey) summary() notice.Summary {
	out := notice.Summary{
		Failing: s.failing, Namespaces: []notice.Count{}, Objects: append([]notice.Failure{}, s.oldest...),
		MoreObjects: s.failing - len(s.oldest), MoreNamespaces: max(0, len(s.namespaces)-mostNamespaces),
	}
	most := slices.SortedFunc(maps.Values(s.namespaces), func(a, b *notice.Count) int {
		return cmp.Or(cmp.Compare(b.Failing, a.Failing), cmp.Compare(a.Namespace, b.Namespace))
	})
	for _, c := range most[:min(len(most), mostNamespaces)] {
		out.Namespaces = append(out.Namespaces, *c)
	}
	return out
}

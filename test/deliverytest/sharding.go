package deliverytest

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/sharding"
)

// Sharding says, per call, whether a server honors the call's shard selector. The zero value honors all of them.
type Sharding struct {
	mu     sync.Mutex
	ignore func() bool
}

// Ignore sets what is asked at every call; nil: all selectors are honored. It may be called at any time.
func (s *Sharding) Ignore(ignore func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ignore = ignore
}

func (s *Sharding) ignores() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ignore != nil && s.ignore()
}

var shardRange = regexp.MustCompile(
	`^shardRange\((object\.metadata\.uid), '(0x[0-9a-f]{16})', '(0x[0-9a-f]{16}|0x10000000000000000)'\)$`)

// shard reads a shard selector as the API server does.
func (m *Memory) shard(text string) (sharding.Selector, error) {
	if text == "" || m.Sharding.ignores() {
		return sharding.Everything(), nil
	}
	var requirements []sharding.ShardRangeRequirement
	for part := range strings.SplitSeq(text, " || ") {
		match := shardRange.FindStringSubmatch(part)
		if match == nil || !sharding.HexLess(match[2], match[3]) {
			return nil, fmt.Errorf("invalid shard selector %q", part)
		}
		requirements = append(requirements, sharding.ShardRangeRequirement{Key: match[1], Start: match[2], End: match[3]})
	}
	return sharding.NewSelector(requirements...), nil
}

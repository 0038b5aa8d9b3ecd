package deliverytest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/internal/delivery/feed"
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

// hashes are ranges of a hash, both ends included.
type hashes [][2]uint64

func (h hashes) matches(obj metav1.Object) bool {
	hash := fnv.New64a() // which Kubernetes specifies for shard selectors
	hash.Write([]byte(obj.GetUID()))
	sum := hash.Sum64()
	return slices.ContainsFunc(h, func(r [2]uint64) bool { return r[0] <= sum && sum <= r[1] })
}

var shardRange = regexp.MustCompile(
	`^shardRange\(object\.metadata\.uid, '0x([0-9a-f]{16})', '0x([0-9a-f]{16}|10000000000000000)'\)$`)

// shard reads a shard selector as the API server does.
func (m *Memory) shard(text string) (hashes, error) {
	if text == "" || m.Sharding.ignores() {
		return hashes{{0, math.MaxUint64}}, nil
	}
	var out hashes
	for part := range strings.SplitSeq(text, " || ") {
		match := shardRange.FindStringSubmatch(part)
		if match == nil {
			return nil, fmt.Errorf("invalid shard selector %q", part)
		}
		start, err := strconv.ParseUint(match[1], 16, 64)
		if err != nil {
			return nil, err
		}
		end, _ := new(big.Int).SetString(match[2], 16)
		last := end.Sub(end, big.NewInt(1))
		if !last.IsUint64() || last.Uint64() < start {
			return nil, fmt.Errorf("empty shard selector %q", part)
		}
		out = append(out, [2]uint64{start, last.Uint64()})
	}
	return out, nil
}

// shardSelector returns the shard selector of a request: that of its options, or what a transport would add.
func shardSelector(ctx context.Context, o metav1.ListOptions) string {
	if field := reflect.ValueOf(o).FieldByName("ShardSelector"); field.IsValid() {
		return field.String()
	}
	return feed.ShardSelectorFrom(ctx)
}

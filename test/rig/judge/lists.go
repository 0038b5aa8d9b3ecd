package judge

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rota-dev/rota/slot"
)

// ListedBy returns how many objects were in the lists that members got after from and up to to. sites are the Websites;
// each has one child of each kind, and all have the labels of their delivery.
func (l *Log) ListedBy(world World, from, to time.Time, sites []Site) (int, error) {
	total := 0
	for _, list := range l.Lists {
		if _, ok := world.Pod(list.User); !ok || !list.At.After(from) || list.At.After(to) {
			continue
		}
		n, err := list.matches(world, sites)
		if err != nil {
			return 0, err
		}
		if list.One {
			n = min(1, n)
		}
		total += n
	}
	return total, nil
}

// matches counts the objects that the list's selectors let through.
func (l List) matches(world World, sites []Site) (int, error) {
	selector, err := labels.Parse(l.Labels)
	if err != nil {
		return 0, fmt.Errorf("label selector of a list of %s: %w", l.Resource, err)
	}
	shards, err := parseShards(l.Shards)
	if err != nil {
		return 0, fmt.Errorf("shard selector of a list of %s: %w", l.Resource, err)
	}
	if selector.Empty() && shards == nil {
		return len(sites), nil
	}
	n := 0
	for _, s := range sites {
		set := labels.Set{}
		if name, value := world.label(l.Resource, s); name != "" {
			set[name] = value
		}
		// The UIDs of children are not known here; nobody selects by them.
		hash := slot.KeyUID.Hash("", "", s.UID)
		if selector.Matches(set) && shards.match(hash) {
			n++
		}
	}
	return n, nil
}

// shards are the ranges of a shard selector; nil matches everything.
type shards []shard

// shard is a range of hashes with both ends.
type shard struct{ first, last uint64 }

func (s shards) match(hash uint64) bool {
	for _, r := range s {
		if r.first <= hash && hash <= r.last {
			return true
		}
	}
	return s == nil
}

var shardRange = regexp.MustCompile(
	`^\s*shardRange\(\s*object\.metadata\.uid\s*,\s*'0x([0-9a-f]{16})'\s*,\s*'0x(1?[0-9a-f]{16})'\s*\)\s*$`)

func parseShards(selector string) (shards, error) {
	if selector == "" {
		return nil, nil
	}
	var out shards
	for _, part := range strings.Split(selector, "||") {
		m := shardRange.FindStringSubmatch(part)
		if m == nil {
			return nil, fmt.Errorf("cannot read %q", part)
		}
		first, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			return nil, err
		}
		end, err := strconv.ParseUint(m[2][len(m[2])-16:], 16, 64) // 1 and 16 zeros is 0 - 1
		if err != nil {
			return nil, err
		}
		out = append(out, shard{first, end - 1})
	}
	return out, nil
}

package coverage

import "time"

// Bounds are how long something may be wrong before it counts as a finding.
type Bounds struct {
	// Recovery is how long a slot may be without a member that works on it: from a crash to the next owner, a lease and
	// FenceDelay. A member may lack a report for as long.
	Recovery time.Duration
	// Stale is how long a member may leave its report unchanged. After that the report is ignored. Members renew their
	// reports every half lease.
	Stale time.Duration
}

// BoundsOf returns the bounds of a rota with these durations.
func BoundsOf(lease, fenceDelay time.Duration) Bounds {
	return Bounds{Recovery: lease + fenceDelay, Stale: 2 * lease}
}

// BoundsBy returns the bounds by the longest durations that the members report; the defaults' if none reports any.
func BoundsBy(reports []*Report) Bounds {
	var lease, fence time.Duration
	for _, r := range reports {
		l, err := time.ParseDuration(r.Setup[SettingLease])
		f, fenceErr := time.ParseDuration(r.Setup[SettingFence])
		if err == nil && fenceErr == nil {
			lease, fence = max(lease, l), max(fence, f)
		}
	}
	if lease <= 0 {
		lease, fence = 15*time.Second, 2500*time.Millisecond
	}
	return BoundsOf(lease, fence)
}

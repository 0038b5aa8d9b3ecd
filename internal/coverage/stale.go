package coverage

import "time"

// Bounds are how long a problem may exist before it counts as a finding.
type Bounds struct {
	// Recovery is how long a slot may be without a working member: from a crash to the next owner, which takes a lease and
	// FenceDelay. A member may lack a report for as long.
	Recovery time.Duration
	// Stale is how long a member may leave its report unchanged before the report is ignored. Members renew their reports
	// every half lease.
	Stale time.Duration
}

// BoundsOf returns the bounds of a rota with these durations.
func BoundsOf(lease, fenceDelay time.Duration) Bounds {
	return Bounds{Recovery: lease + fenceDelay, Stale: 2 * lease}
}

// BoundsBy returns the bounds for the longest durations that the members report, or for the defaults if none does.
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

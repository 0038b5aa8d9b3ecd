package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/test/store/memory"
)

func Example() {
	ctx, shared := context.Background(), memory.New()
	one, other := shared.Client(nil), shared.Client(nil)

	lease, _, _ := one.CreateLease(ctx, member.Lease{ID: "web-0-x7k2p"}, time.Second)
	seen := lease.Version
	lease, outcome, _ := one.RenewLease(ctx, lease, time.Second)
	fmt.Println("renewed:", outcome == member.OutcomeDone)

	outcome, err := other.DeleteLease(ctx, lease.ID, lease.UID, seen, time.Second)
	fmt.Println("alive:", outcome == member.OutcomeConflict, err)
	// Output:
	// renewed: true
	// alive: true DeleteLease: the lease of web-0-x7k2p exists, or is not the version expected
}

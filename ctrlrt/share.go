package ctrlrt

import (
	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/delivery"
)

// shareOf returns the informers over a member's share.
func shareOf(r *rota.Rota) *delivery.Share { return r.Adapt(adapter.Grant()).Share }

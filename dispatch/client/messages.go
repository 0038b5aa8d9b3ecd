package client

import "github.com/rota-dev/rota/internal/dispatch/wire"

// Messages of the protocol that single requests take and return; package documentation and docs/dispatch.md say what
// they mean. Workers need none of them: see Run.
type (
	TakeRequest   = wire.TakeRequest
	StreamRequest = wire.StreamRequest
	Stats         = wire.Stats
	KindStats     = wire.KindStats
)

package client

import "github.com/rota-dev/rota/internal/dispatch/wire"

// Messages of the protocol in docs/dispatch.md. Workers that call Run do not need them.
type (
	// TakeRequest asks for keys with Client.Take.
	TakeRequest = wire.TakeRequest
	// StreamRequest opens a stream of keys with Client.Stream.
	StreamRequest = wire.StreamRequest
	// Stats is the state of the keys of all dispatchers.
	Stats = wire.Stats
	// KindStats are the Stats of one kind.
	KindStats = wire.KindStats
)

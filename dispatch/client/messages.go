package client

import "github.com/rota-dev/rota/internal/dispatch/wire"

// Messages of the protocol, as docs/dispatch.md has them. Workers need none of them: see Run.
type (
	// TakeRequest asks for keys, with Client.Take.
	TakeRequest = wire.TakeRequest
	// StreamRequest begins a stream of keys, with Client.Stream.
	StreamRequest = wire.StreamRequest
	// Stats says what waits with all dispatchers.
	Stats = wire.Stats
	// KindStats are those of one kind.
	KindStats = wire.KindStats
)

package duty

import "context"

type heldKey struct{}

// withHeld returns the context of a duty, from which Held returns held. held ends when the duty is lost or can wait no
// longer, while ctx also ends when a planned handover begins.
func withHeld(ctx, held context.Context) context.Context {
	return context.WithValue(ctx, heldKey{}, held)
}

// Held returns the held context of a duty (see withHeld), or ctx itself outside of duties.
func Held(ctx context.Context) context.Context {
	if held, ok := ctx.Value(heldKey{}).(context.Context); ok {
		return held
	}
	return ctx
}

package duty

import "context"

type heldKey struct{}

// withHeld returns the context of a duty. held is a context that ends when the duty is lost or can wait no longer. That
// of the duty itself also ends when a planned handover begins.
func withHeld(ctx, held context.Context) context.Context {
	return context.WithValue(ctx, heldKey{}, held)
}

// Held returns the context given to withHeld, or ctx itself outside of duties.
func Held(ctx context.Context) context.Context {
	if held, ok := ctx.Value(heldKey{}).(context.Context); ok {
		return held
	}
	return ctx
}

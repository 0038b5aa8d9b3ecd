package gate_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/rota-dev/rota/internal/gate"
)

// A reconciler that writes to a system outside Kubernetes passes the epoch along. The system keeps the highest one that
// it has seen for the object, and refuses lower ones: those are late writes of a former owner.
func ExampleEpochFrom() {
	publish := func(ctx context.Context, name string) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, "https://cdn.example.com/"+name, nil)
		if err != nil {
			return nil, err
		}
		if epoch, ok := gate.EpochFrom(ctx); ok { // else this is no reconcile of a sharded controller
			req.Header.Set("Fencing-Token", fmt.Sprint(epoch))
		}
		return req, nil
	}
	req, err := publish(context.Background(), "hello")
	fmt.Println(req.URL, req.Header, err)
	// Output: https://cdn.example.com/hello map[] <nil>
}

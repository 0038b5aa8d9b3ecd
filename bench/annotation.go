package bench

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// annotate gives an object an annotation.
func annotate(ctx context.Context, c client.Client, obj client.Object, key, value string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
}

// numberIn is the number in an annotation; 0: there is none.
func numberIn(obj client.Object, key string) int64 {
	n, _ := strconv.ParseInt(obj.GetAnnotations()[key], 10, 64)
	return n
}

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/test/stage"
)

const (
	// WebsiteBytes is the size of a Website in JSON, with its metadata and its status.
	WebsiteBytes = 2048
	// overhead is the part of it that is not content.
	overhead = 1325
)

// Site returns a Website that has WebsiteBytes once its status is written.
func Site(namespace, name string) *webv1.Website {
	return &webv1.Website{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       webv1.WebsiteSpec{Title: "The website " + name, Content: Letters(name, WebsiteBytes-overhead)},
	}
}

// Letters returns n random hexadecimal digits in words, the same for the same seed. Compression halves this text, so a
// compressed response halves too.
func Letters(seed string, n int) string {
	var key [32]byte
	copy(key[:], seed)
	random := rand.New(rand.NewChaCha8(key))
	var b strings.Builder
	for b.Len() < n {
		fmt.Fprintf(&b, "%08x ", random.Uint32())
	}
	return b.String()[:n]
}

// SiteName is the name of the i-th Website that Fill makes.
func SiteName(i int) string { return fmt.Sprintf("site-%05d", i) }

// Fill creates n Websites.
func (c *Cluster) Fill(ctx context.Context, n int) error {
	return stage.Parallel(ctx, 0, n, func(i int) error {
		obj := Site(c.Sites, SiteName(i))
		if err := Stamp(c.Client.Scheme(), obj); err != nil {
			return err
		}
		return c.Client.Create(ctx, obj)
	})
}

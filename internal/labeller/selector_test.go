package labeller_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// objects is how many objects TestSelectorCost makes. The figures of the package's comment are
// of LABELLER_OBJECTS=10000.
func objects(t *testing.T) int {
	if text := os.Getenv("LABELLER_OBJECTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 2_000
}

// TestSelectorCost measures what the package's comment says of the selectors: that the long one passes, and what
// either costs the server for an object that it does not select.
func TestSelectorCost(t *testing.T) {
	config := controlplane.For(t).Config()
	ns := controlplane.Namespace(t)
	n := objects(t)
	begun := time.Now()
	fill(t, kubernetes.NewForConfigOrDie(config), ns, n)
	t.Logf("%d labelled ConfigMaps made in %v", n, time.Since(begun).Round(time.Millisecond))

	client := metadata.NewForConfigOrDie(config).Resource(configMaps).Namespace(ns)
	best := map[string]time.Duration{}
	for _, selector := range []string{"none=such", labeller.Missing(label), labeller.Malformed(label)} {
		for _, limit := range []int64{0, 500} {
			took := make([]time.Duration, 0, 7)
			for range cap(took) {
				begun := time.Now()
				list, err := client.List(t.Context(), metav1.ListOptions{LabelSelector: selector, Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				if len(list.Items) != 0 || list.Continue != "" {
					t.Fatalf("%.30s selects %d labelled objects", selector, len(list.Items))
				}
				took = append(took, time.Since(begun))
			}
			best[selector] = slices.Min(took)
			t.Logf("list of none with limit %3d by %-30.30s (%5d bytes in the URL): best %8v, median %8v", limit, selector,
				len(url.QueryEscape(selector)), slices.Min(took).Round(10*time.Microsecond),
				middle(took).Round(10*time.Microsecond))
		}
	}
	per := (best[labeller.Malformed(label)] - best[labeller.Missing(label)]) / time.Duration(n)
	t.Logf("notin costs %v more per object than !", per)

	w, err := client.Watch(t.Context(), metav1.ListOptions{LabelSelector: labeller.Malformed(label)})
	if err != nil {
		t.Fatalf("watch with the long selector: %v", err)
	}
	w.Stop()
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// fill makes n labelled ConfigMaps.
func fill(t *testing.T, client kubernetes.Interface, ns string, n int) {
	t.Helper()
	var group sync.WaitGroup
	work := make(chan int)
	for range 16 {
		group.Go(func() {
			for i := range work {
				name := fmt.Sprintf("c%d", i)
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: map[string]string{label: labeller.Value(slot.KeyName, ns, name)},
				}}
				if _, err := client.CoreV1().ConfigMaps(ns).Create(context.Background(), cm, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
}

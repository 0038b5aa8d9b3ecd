package kubernetes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/serving"
)

// Server is what an API server has of what Rota, or informers of client-go, can use.
type Server struct {
	// Leases and Events say whether it serves those of coordination.k8s.io/v1 and events.k8s.io/v1.
	Leases bool `json:"leases"`
	Events bool `json:"events"`
	// Policies is the newest version of ValidatingAdmissionPolicies; empty: none.
	Policies string `json:"policies,omitempty"`
	// Shards says whether it honors shard selectors, once its feature gate is on if it has one.
	Shards bool `json:"shards"`
	// WatchList and Bookmarks say what its watches do, CBOR whether it answers in that encoding.
	WatchList bool `json:"watch_list"`
	Bookmarks bool `json:"bookmarks"`
	CBOR      bool `json:"cbor"`
	// Lists are consistent lists, Pages the pages after the first of such lists.
	Lists Reads `json:"lists"`
	Pages Reads `json:"pages"`
	// Gates are those of the feature gates that package serving knows which the server knows, too.
	Gates serving.Gates `json:"gates"`
}

// Reads counts requests, the objects that the API server answered with, and those that it read from etcd for that.
type Reads struct {
	Requests int `json:"requests"`
	Objects  int `json:"objects"`
	FromEtcd int `json:"from_etcd"`
}

// cached reports whether the answers came from the API server's cache. For the version that a list has to have it may
// read an object from etcd.
func (r Reads) cached() bool { return r.Requests > 0 && r.FromEtcd <= r.Requests }

// Ask finds out what an API server has. It makes objects in the namespace. Nobody else may use the API server
// meanwhile, as lists are counted by its metrics.
func Ask(ctx context.Context, cfg *rest.Config, namespace string) (s Server, err error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return s, err
	}
	core := client.CoreV1().RESTClient()
	gates, err := serving.ReadGates(ctx, core)
	if err != nil {
		return s, err
	}
	s.Gates = serving.Gates{}
	for _, name := range []string{serving.GateConsistentLists, serving.GatePages} {
		if on, known := gates[name]; known {
			s.Gates[name] = on
		}
	}
	if s.Policies, err = serving.Policies(client.Discovery()); err != nil {
		return s, err
	}
	for _, ask := range []struct {
		has *bool
		do  func() (bool, error)
	}{
		{&s.Leases, func() (bool, error) {
			return serving.Resource(client.Discovery(), "coordination.k8s.io/v1", "leases")
		}},
		{&s.Events, func() (bool, error) { return serving.Resource(client.Discovery(), "events.k8s.io/v1", "events") }},
		{&s.Shards, func() (bool, error) { return serving.Shards(ctx, core, namespace) }},
		{&s.WatchList, func() (bool, error) { return serving.WatchList(ctx, core, namespace) }},
		{&s.CBOR, func() (bool, error) { return cbor(ctx, core) }},
		{&s.Bookmarks, func() (bool, error) { return bookmarks(ctx, client, namespace) }},
	} {
		if *ask.has, err = ask.do(); err != nil {
			return s, err
		}
	}
	return s, s.lists(ctx, client, namespace)
}

// cbor reports whether the API server answers in CBOR, which it refuses with 406 if it does not.
func cbor(ctx context.Context, core rest.Interface) (bool, error) {
	var status int
	result := core.Get().Resource("namespaces").SetHeader("Accept", "application/cbor").Do(ctx).StatusCode(&status)
	switch err := result.Error(); {
	case status == http.StatusNotAcceptable:
		return false, nil
	case status == http.StatusOK: // whether or not this client can read it
		return true, nil
	default:
		return false, err
	}
}

// bookmarks reports whether a watch gets one. The API server sends one two seconds before it ends a watch, but none of
// a kind of which its cache has not seen an event.
func bookmarks(ctx context.Context, client kubernetes.Interface, namespace string) (bool, error) {
	seconds := int64(5)
	w, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx,
		metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	if err := create(ctx, client, namespace, 1); err != nil {
		return false, err
	}
	for event := range w.ResultChan() {
		if event.Type == watch.Bookmark {
			return true, nil
		}
	}
	return false, ctx.Err()
}

const objects, perPage, times = 30, 10, 20

func create(ctx context.Context, client kubernetes.Interface, namespace string, n int) error {
	for i := range n {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "listed-" + strconv.Itoa(i)}}
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// lists finds out where consistent lists come from, as members ask for them, and as they ask for pages.
func (s *Server) lists(ctx context.Context, client kubernetes.Interface, namespace string) error {
	if err := create(ctx, client, namespace, objects); err != nil {
		return err
	}
	list := func(r *Reads, o metav1.ListOptions) (string, error) {
		l, err := client.CoreV1().ConfigMaps(namespace).List(ctx, o)
		if err != nil {
			return "", err
		}
		r.Requests, r.Objects = r.Requests+1, r.Objects+len(l.Items)
		return l.Continue, nil
	}
	var first Reads // of lists in pages
	for range times {
		var more string
		for _, step := range []struct {
			reads *Reads
			do    func() error
		}{
			{&s.Lists, func() error { _, err := list(&s.Lists, metav1.ListOptions{}); return err }},
			{&first, func() (err error) { more, err = list(&first, metav1.ListOptions{Limit: perPage}); return err }},
			{&s.Pages, func() (err error) {
				for more != "" && err == nil {
					more, err = list(&s.Pages, metav1.ListOptions{Limit: perPage, Continue: more})
				}
				return err
			}},
		} {
			n, err := fromEtcd(ctx, client.CoreV1().RESTClient(), step.do)
			if err != nil {
				return err
			}
			step.reads.FromEtcd += n
		}
	}
	return nil
}

// fromEtcd returns how many ConfigMaps the API server reads from etcd for lists while something is done.
func fromEtcd(ctx context.Context, core rest.Interface, do func() error) (int, error) {
	before, err := readFetched(ctx, core)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := readFetched(ctx, core)
	return after - before, err
}

func readFetched(ctx context.Context, core rest.Interface) (int, error) {
	text, err := core.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = text.Close() }()
	return countFetched(text)
}

var listed = regexp.MustCompile(`^apiserver_storage_list_fetched_objects_total\{(.*)\} (\S+)$`)

// countFetched reads how many ConfigMaps were read from etcd for lists. Since 1.37 the metric also counts those from
// the cache.
func countFetched(metrics io.Reader) (n int, err error) {
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		match := listed.FindStringSubmatch(lines.Text())
		if match == nil || !strings.Contains(match[1], `resource="configmaps"`) ||
			strings.Contains(match[1], `storage="watchcache"`) {
			continue
		}
		count, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", lines.Text(), err)
		}
		n += int(count)
	}
	return n, lines.Err()
}

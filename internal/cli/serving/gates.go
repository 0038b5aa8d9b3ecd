package serving

import (
	"bufio"
	"context"
	"io"
	"regexp"
	"strings"

	"k8s.io/client-go/rest"
)

// Feature gates of the API server that lists and watches depend on.
const (
	// GateConsistentLists has consistent lists answered from the API server's cache.
	GateConsistentLists = "ConsistentListFromCache"
	// GatePages has further pages of such lists answered from there, too.
	GatePages = "ListFromCacheSnapshot"
)

// Gates are feature gates by name. Gates that the API server does not know, or no longer, are missing.
type Gates map[string]bool

// Off reports whether the API server knows the gate, and has it off.
func (g Gates) Off(name string) bool {
	on, known := g[name]
	return known && !on
}

// FirstPageOnly reports whether a list that begins in the cache goes on in etcd. An API server from before GatePages
// still has GateConsistentLists. One that no longer has the former no longer has the latter, either.
func (g Gates) FirstPageOnly() bool {
	pages, knowsPages := g[GatePages]
	lists, knowsLists := g[GateConsistentLists]
	return knowsPages && !pages || !knowsPages && knowsLists && lists
}

// ReadGates reads the feature gates from the metrics of the API server. It needs permission to get the path /metrics.
// Behind a load balancer these are the gates of one API server.
func ReadGates(ctx context.Context, core rest.Interface) (Gates, error) {
	stream, err := core.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	return parseGates(stream)
}

var gate = regexp.MustCompile(`^kubernetes_feature_enabled\{.*\bname="([^"]+)".*\} ([01])$`)

// parseGates reads as little as it can: metrics are sorted by name, and there are megabytes of them.
func parseGates(metrics io.Reader) (Gates, error) {
	out := Gates{}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch match := gate.FindStringSubmatch(lines.Text()); {
		case match != nil:
			out[match[1]] = match[2] == "1"
		case len(out) > 0 && !strings.HasPrefix(lines.Text(), "#"):
			return out, nil
		}
	}
	return out, lines.Err()
}

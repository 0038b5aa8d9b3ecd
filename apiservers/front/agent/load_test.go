package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/require"
)

const (
	clients = 6
	// A request that fails is tried again after retryAfter, until giveUp.
	retryAfter, giveUp = 20 * time.Millisecond, 15 * time.Second
	pace               = 20 * time.Millisecond
)

// load are clients that get and watch through the front, each by connections of its own, and try again what fails.
type load struct {
	config *rest.Config
	mu     sync.Mutex
	seen   outcome
	// done are the gets of each client, and watching how many watches are open.
	done     [clients]int
	watching int
	wait     sync.WaitGroup
}

// outcome is what happened in a phase.
type outcome struct {
	// gets were answered, failed were not within giveUp, and retried took more than one attempt.
	gets, failed, retried int
	// longest is the longest time that a get took that was retried, and rewatch that from the end of a watch
	// to the next.
	longest, rewatch time.Duration
	why              error
}

func (o outcome) String() string {
	return fmt.Sprintf("%d gets, %d failed, %d retried; longest without an answer: get %v, watch %v", o.gets, o.failed,
		o.retried, o.longest.Round(time.Millisecond), o.rewatch.Round(time.Millisecond))
}

func startLoad(t *testing.T, config *rest.Config, address string) *load {
	t.Helper()
	l := &load{config: rest.CopyConfig(config)}
	l.config.Host, l.config.ServerName = "https://"+address, "kubernetes"
	ctx, cancel := context.WithCancel(context.Background())
	for i := range clients {
		client := l.client(t)
		l.wait.Go(func() { l.getAll(ctx, i, client, l.config.Host) })
		l.wait.Go(func() { l.watch(ctx, client, l.config.Host) })
	}
	t.Cleanup(func() {
		cancel()
		l.wait.Wait()
	})
	return l
}

// client is a client with connections of its own.
func (l *load) client(t *testing.T) *http.Client {
	t.Helper()
	c := rest.CopyConfig(l.config)
	c.Dial = dialer.DialContext // clients with a function of their own share no connections
	transport, err := rest.TransportFor(c)
	require.NoError(t, err)
	return &http.Client{Transport: transport}
}

// fresh returns what asks for something that needs no etcd, by a new connection, and says what went wrong, or "".
func (l *load) fresh(t *testing.T) func() string {
	t.Helper()
	client := l.client(t)
	return func() string {
		defer client.CloseIdleConnections()
		if err := get(t.Context(), client, l.config.Host+"/version", nil); err != nil {
			return "a new connection: " + err.Error()
		}
		return ""
	}
}

// getAll gets the same object again and again.
func (l *load) getAll(ctx context.Context, i int, client *http.Client, host string) {
	for await.Sleep(ctx, pace) == nil {
		begun, retried := time.Now(), false
		err := get(ctx, client, host+"/api/v1/namespaces/default", nil)
		for err != nil && ctx.Err() == nil && time.Since(begun) < giveUp {
			retried = true
			_ = await.Sleep(ctx, retryAfter)
			err = get(ctx, client, host+"/api/v1/namespaces/default", nil)
		}
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.seen.gets++
		l.done[i]++
		if err != nil {
			l.seen.failed++
			l.seen.why = err
		}
		if retried {
			l.seen.retried++
			l.seen.longest = max(l.seen.longest, time.Since(begun))
		}
		l.mu.Unlock()
	}
}

// watch keeps a watch open.
func (l *load) watch(ctx context.Context, client *http.Client, host string) {
	var ended time.Time
	for ctx.Err() == nil {
		open := false
		_ = get(ctx, client, host+"/api/v1/namespaces/default/configmaps?watch=true", func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			open = true
			l.watching++
			if !ended.IsZero() {
				l.seen.rewatch = max(l.seen.rewatch, time.Since(ended))
			}
		})
		if open || ended.IsZero() {
			ended = time.Now()
		}
		if open {
			l.mu.Lock()
			l.watching--
			l.mu.Unlock()
		}
		_ = await.Sleep(ctx, retryAfter)
	}
}

// get reads an answer to its end. begun, unless nil, is called when it begins, and then the answer may take any time.
func get(ctx context.Context, client *http.Client, url string, begun func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(giveUp, cancel)
	defer late.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", response.Status)
	}
	if begun != nil {
		late.Stop()
		begun()
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// settled says whether each client has got something since before, and watches, or "".
func (l *load) settled(before [clients]int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, n := range l.done {
		if n < before[i]+2 { // the first of them may have begun before
			return fmt.Sprintf("client %d has got nothing", i)
		}
	}
	if l.watching < clients {
		return fmt.Sprintf("%d of %d watches are open", l.watching, clients)
	}
	return ""
}

func (l *load) gets() [clients]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// take returns what happened since the last call.
func (l *load) take() outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.seen
	l.seen = outcome{}
	return o
}

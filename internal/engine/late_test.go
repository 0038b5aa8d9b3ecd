package engine

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A write that a slow webhook holds up fails by an error that says how to give it more time, stays a timeout for
// programs, is counted, and is logged, now and then.
func TestLateWritesSayWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		answer  roundTripper
		timeout func(error) bool
		words   string
	}{
		"no answer": {func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }, "found no connection"},
		"the server gives up": {func(req *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusGatewayTimeout, Header: http.Header{"Content-Type": {"text/plain"}}, Request: req,
				Body: io.NopCloser(strings.NewReader("request did not complete within the allotted timeout")),
			}, nil
		}, apierrors.IsTimeout, "raise WriteTimeout"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logged []string
				r := testRotaLogging(t, funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}))
				mayWrite(r, time.Hour)
				client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "https://127.0.0.1:1", QPS: -1,
					Transport: r.WrapTransport(test.answer)})
				for range 3 {
					_, err := client.CoreV1().ConfigMaps("a").
						Patch(r.withSlot(t.Context(), 3), "b", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
					if err == nil || !strings.Contains(err.Error(), test.words) ||
						!strings.Contains(err.Error(), "/namespaces/a/configmaps/b") || !test.timeout(err) {
						t.Errorf("error %v", err)
					}
				}
				registry := prometheus.NewRegistry()
				registry.MustRegister(r.metrics.late)
				all, err := registry.Gather()
				noError(t, err)
				if n := all[0].GetMetric()[0].GetCounter().
					GetValue(); n != 3 || len(logged) != 1 || !strings.Contains(logged[0], test.words) {
					t.Errorf("%s counts %v, logged %v; want 3, once", all[0].GetName(), n, logged)
				}
				synctest.Wait()
				time.Sleep(time.Minute) // the writes count as in flight for a while
			})
		})
	}
	t.Run("the caller gives up", func(t *testing.T) {
		r := testRota(t)
		mayWrite(r, time.Hour)
		ctx, cancel := context.WithCancel(r.withSlot(t.Context(), 3))
		err := send(ctx, t, r, http.MethodPut, func(*http.Request) (*http.Response, error) {
			cancel()
			return nil,
				context.Canceled
		})
		if err == nil || strings.Contains(err.Error(), "WriteTimeout") {
			t.Errorf("error %v, want none about WriteTimeout", err)
		}
	})
}

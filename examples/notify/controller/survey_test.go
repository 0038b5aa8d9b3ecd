package controller

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// podServer serves lists of Pods of a namespace, of which every tenth fails, and notes the requests.
type podServer struct {
	pods    int
	unready string // since when they are, if the status says so
	expires int    // the request that is answered so
	asked   []string
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.asked = append(s.asked, fmt.Sprintf("%s limit=%s continue=%s", r.URL.Path, q.Get("limit"), q.Get("continue")))
	w.Header().Set("Content-Type", "application/json")
	if len(s.asked) == s.expires {
		w.WriteHeader(http.StatusGone)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`))
		return
	}
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	to, rest := min(s.pods, from+limit), ""
	if to < s.pods {
		rest = strconv.Itoa(to)
	}
	conditions := `"conditions":[]`
	if s.unready != "" {
		conditions = fmt.Sprintf(`"conditions":[{"type":"Ready","status":"False","lastTransitionTime":%q}]`, s.unready)
	}
	var items []string
	for i := from; i < to; i++ {
		reason := "ContainerCreating"
		if i%10 == 0 {
			reason = notice.CrashLoopBackOff
		} else if i%10 == 1 {
			reason = notice.ImagePullBackOff
		}
		items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"pod-%d","creationTimestamp":"2026-01-01T00:00:00Z"},
			"status":{"containerStatuses":[{"name":"main","state":{"waiting":{"reason":%q}}}],%s}}`, i, reason, conditions))
	}
	_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":%q},"items":[%s]}`,
		rest, strings.Join(items, ","))
}

// TestSurvey: all objects are looked at, in pages and in the namespaces that are configured, and only reasons that are
// told count.
func TestSurvey(t *testing.T) {
	s := &podServer{pods: 450}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client := dynamic.NewForConfigOrDie(&rest.Config{Host: server.URL, QPS: -1})
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	conf := &config.Kind{APIVersion: "v1", Kind: "Pod", Events: []notice.Type{notice.Failing}, Reasons: []string{notice.CrashLoopBackOff}}
	kind := Kind{config: conf, gvk: gvk, resource: corev1.SchemeGroupVersion.WithResource("pods"), namespaced: true}
	var got []notice.Failure
	records, err := OpenRecords(&rest.Config{Host: server.URL}, nil, "home", "notify")
	if err != nil {
		t.Fatal(err)
	}
	survey := func() error {
		got, s.asked = nil, nil
		return kind.Survey(t.Context(), client, records, func(f notice.Failure) { got = append(got, f) })
	}
	if err := survey(); err != nil {
		t.Fatal(err)
	}
	want := notice.Failure{
		Object: notice.Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "pod-440"}, Reason: notice.CrashLoopBackOff,
		Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), // its creation, for want of anything better
	}
	if len(got) != 45 {
		t.Fatalf("%d fail, want 45", len(got))
	}
	if diff := cmp.Diff(want, got[44]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	asked := []string{"/api/v1/pods limit=200 continue=", "/api/v1/pods limit=200 continue=200", "/api/v1/pods limit=200 continue=400"}
	if diff := cmp.Diff(asked, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}

	// Records know better, unless they are of an older object of that name.
	for i, since := range []string{"2026-01-01T02:00:00Z", "2025-12-31T00:00:00Z", "soon"} {
		record := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "home", Name: records.nameOf(kind, cache.NewObjectName("shop", fmt.Sprintf("pod-%d", 10*i))),
			Annotations: map[string]string{failingAnnotation: since},
		}}
		if err := records.hints.GetStore().Add(record); err != nil {
			t.Fatal(err)
		}
	}
	s.unready = "2026-01-01T03:00:00Z"
	if err := survey(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2026-01-01T02:00:00Z", s.unready, s.unready, s.unready} {
		if since := got[i].Since.Format(time.RFC3339); since != want {
			t.Errorf("%s fails since %s, want %s", got[i].Object, since, want)
		}
	}

	// A list that cannot be finished is no list: a part must not be taken for the whole.
	s.expires = 2
	if err := survey(); err == nil || len(s.asked) != 2 || !strings.Contains(err.Error(), "list Pod to see which fail") {
		t.Errorf("asked %q: %v", s.asked, err)
	}
	s.expires = 0

	conf.Namespaces, conf.Reasons, s.pods = []string{"shop", "payment"}, nil, 20
	if err := survey(); err != nil || len(got) != 8 {
		t.Errorf("%d fail, %v, want 4 in each of two lists", len(got), err)
	}
	asked = []string{"/api/v1/namespaces/shop/pods limit=200 continue=", "/api/v1/namespaces/payment/pods limit=200 continue="}
	if diff := cmp.Diff(asked, s.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}

	conf.Events = []notice.Type{notice.Created}
	if err := survey(); err != nil || len(s.asked) > 0 {
		t.Errorf("asked %q, %v, for a kind whose failures are not told", s.asked, err)
	}
}

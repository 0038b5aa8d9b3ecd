package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rota-dev/rota"
)

// shadow opens the dashboard of a rota of shadows beside the demo's.
func shadow(t *testing.T, w *world, browser context.Context) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, pod := range []string{"stock-a", "stock-b"} {
		s, err := rota.NewShadow(cfg, rota.Options{Name: name, Namespace: namespace, Identity: rota.Identity{Pod: pod},
			LeaseDuration: lease, ScrubPeriod: time.Second, LeaveTimeout: time.Second, Logger: logr.Discard()},
			schema.GroupKind{Group: "web.example.com", Kind: "Website"})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Start(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
	}
	joined, enough := context.WithTimeout(t.Context(), generous)
	defer enough()
	for { // the first start of a rota takes a lease
		err := w.json(joined, &struct{}{}, "status", name+"-shadow", "-n", namespace)
		if err == nil {
			break
		}
		if joined.Err() != nil {
			t.Fatalf("rota status of the shadow: %v", err)
		}
		select {
		case <-joined.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	server := start(t, "dashboard of a shadow", w.rota, "dashboard", name+"-shadow", "-n", namespace, "--kubeconfig", w.kubeconfig)
	defer func() {
		if err := server.end(t); err != nil {
			t.Errorf("rota dashboard: %v", err)
		}
	}()
	_, url, _ := strings.Cut(server.until(t, "http://", time.Minute), "http://")
	url, _, _ = strings.Cut("http://"+url, " ")
	p := openTab(t, browser, url, 1280)
	p.wait(generous, "two shadows, and what they would have", `document.querySelector("#ring .big").textContent === "256/256" &&
	  document.querySelectorAll("#member-rows tr[data-state=Shadow]").length === 2 &&
	  document.getElementById("moves-table").hidden && document.querySelectorAll("#shadow-rows tr").length === 3`)
	rows := value[[][]string](p, `[...document.querySelectorAll("#shadow-rows tr")].map((tr) => [...tr.children].map((c) => c.textContent.trim()))`)
	all, a, b := rows[0], rows[1], rows[2]
	count := func(text string) (n int) {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Errorf("%q in %q is no number", text, rows)
		}
		return n
	}
	if all[0] != "Website.web.example.com" || all[1] != "all of them" || all[3] != "100 %" ||
		count(a[2]) == 0 || count(b[2]) == 0 {
		t.Errorf("the members would have %q", rows)
	}
	// The load replaces a Website by another one now and then, and a change between the lists of two members may count in
	// both, or in none.
	if there := len(sites(t, w)); count(all[2]) < there-10 || count(all[2]) > there+10 {
		t.Errorf("the members would have %s Websites, the API server has %d", all[2], there)
	}
	if names := []string{a[1], b[1]}; !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "stock-a") }) {
		t.Errorf("no member is stock-a: %q", rows)
	}
	for id, want := range map[string]string{"facts": "SHADOW", "shadow": "work on nothing", "run-rows": "would be worked on"} {
		if text := value[string](p, fmt.Sprintf(`document.getElementById(%q).textContent`, id)); !strings.Contains(text, want) {
			t.Errorf("%s: no %q in %q", id, want, text)
		}
	}
	if text := value[string](p, `document.getElementById("setup").textContent`); strings.Contains(text, "Fence") {
		t.Errorf("the dashboard tells of a fence: %q", text)
	}
	for _, width := range []int64{1280, 400} {
		p.look("shadow", width, "light")
		if got := value[int64](p, "document.documentElement.scrollWidth"); got > width {
			t.Errorf("at %d pixels the page is %d wide", width, got)
		}
	}
	p.clean()
}

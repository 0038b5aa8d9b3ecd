// Package browser tests `rota dashboard` in headless Chromium, on a real control plane with real members.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	namespace, name = "rota-demo", "website"
	// lease is that of the demo in setUp. generous is more than ten times what a killed member takes to turn red, and what
	// its slots take to be owned again, on an idle machine.
	lease    = 6 * time.Second
	generous = 3 * time.Minute
	evil     = `<img src=x onerror=alert(1)>`
)

// numbers are what `rota status -o json` and the page both show.
type numbers struct {
	Epoch   uint64
	Members []memberNumbers
	Runs    int
	Duties  []string
	Moves   bool
	What    []string // of the problems
}

type memberNumbers struct {
	Pod, State     string
	Slots, Duties  int
	Objects, Build string
	Load           bool // is a number, or not known; which one changes all the time
}

// inPage reads them from the page.
const inPage = `(() => {
  const text = (e) => e.textContent.trim();
  const rows = (id) => [...document.getElementById(id).children].map((tr) => [...tr.children]);
  return {
    epoch: Number(/epoch (\d+)/.exec(text(document.getElementById("facts")))[1]),
    members: rows("member-rows").map((c) => ({
      pod: text(c[0].lastChild.lastChild), state: text(c[1]), slots: Number(text(c[2].firstChild)), duties: Number(text(c[3])),
      objects: text(c[4]), load: /^(\?|\d+\.\d\d)$/.test(text(c[5])), build: text(c[8]),
    })),
    runs: rows("run-rows").length,
    duties: rows("duty-rows").map((c) => text(c[0]) + " " + text(c[2])),
    moves: !document.getElementById("moves-table").hidden,
    what: [...document.querySelectorAll("#problem-list strong")].map((e) => text(e).replace(/^.*: /, "")),
  };
})()`

// status reads them from `rota status`.
func status(ctx context.Context, w *world) (numbers, error) {
	var s struct {
		Epoch   uint64
		Members []struct {
			Pod, State, Build string
			Owned, Duties     int
			Objects           *int
		}
		Runs     []json.RawMessage
		Duties   []struct{ Name, State string }
		Moves    []json.RawMessage
		Problems []struct{ What string }
	}
	if err := w.json(ctx, &s, "status", name, "-n", namespace); err != nil {
		return numbers{}, err
	}
	n := numbers{Epoch: s.Epoch, Runs: len(s.Runs), Moves: len(s.Moves) > 0}
	for _, m := range s.Members {
		objects := "?"
		if m.Objects != nil {
			objects = fmt.Sprint(*m.Objects)
		}
		n.Members = append(n.Members, memberNumbers{m.Pod, m.State, m.Owned, m.Duties, objects, m.Build, true})
	}
	for _, d := range s.Duties {
		n.Duties = append(n.Duties, d.Name+" "+d.State)
	}
	for _, p := range s.Problems {
		n.What = append(n.What, p.What)
	}
	return n, nil
}

// agree waits until the page and `rota status` say the same. The load goes on between two looks.
func agree(t *testing.T, w *world, p *tab) numbers {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	for {
		told, err := status(ctx, w)
		shown := value[numbers](p, inPage)
		if err == nil && reflect.DeepEqual(normal(told), normal(shown)) {
			return told
		}
		select {
		case <-ctx.Done():
			t.Fatalf("rota status: %+v, %v\nthe page: %+v", told, err, shown)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func normal(n numbers) numbers {
	n.Duties, n.What = slices.Concat(n.Duties, []string{}), slices.Concat(n.What, []string{})
	return n
}

const (
	settled = `document.querySelector("#ring .big").textContent === "256/256" && document.getElementById("moves-table").hidden &&
	  [...document.querySelectorAll("#member-rows tr")].every((tr) => tr.dataset.state === "Working")`
	members = `document.querySelectorAll("#member-rows tr").length`
)

// TestDashboard goes through what somebody does with `rota-demo --dashboard`.
func TestDashboard(t *testing.T) {
	chromium := findChromium(t)
	w := setUp(t)
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium),
		chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	browser, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	if err := chromedp.Run(browser); err != nil {
		t.Fatalf("start %s: %v", chromium, err)
	}

	p := openTab(t, browser, w.url, 1280)
	p.wait(generous, "three members work", settled+" && "+members+" === 3")
	first := agree(t, w, p)
	if len(first.Members) != 3 || first.Members[0].Slots+first.Members[1].Slots+first.Members[2].Slots != 256 || first.Runs < 3 {
		t.Errorf("rota status: %+v", first)
	}
	accessible(t, p)
	search(t, w, p)

	// By keyboard: the button has the focus, and keeps it while the table changes.
	victim, leaver := first.Members[1].Pod, first.Members[0].Pod
	watchRows(p)
	p.do("kill "+victim, chromedp.Focus(fmt.Sprintf(`button[aria-label="Kill %s"]`, victim), chromedp.ByQuery), chromedp.KeyEvent(kb.Enter))
	p.wait(generous, "the page says so", fmt.Sprintf(`document.getElementById("done").textContent === "%s got SIGKILL."`, victim))
	// The others may expel it a moment after its lease is over: then it stays in sight for some seconds.
	row := fmt.Sprintf(`[...document.querySelectorAll("#member-rows tr")].find((tr) => tr.firstChild.lastChild.lastChild.textContent === %q)`, victim)
	took := p.wait(lease+generous, victim+" turns red", fmt.Sprintf(`(() => {
	  const tr = %s;
	  if (!tr || !(tr.dataset.state === "Silent" || tr.dataset.state === "Expelled" || tr.classList.contains("over"))) return false;
	  const [r, g, b] = getComputedStyle(tr).backgroundColor.match(/\d+/g).map(Number);
	  return r > g + 10 && r > b + 10;
	})()`, row))
	t.Logf("%s was red %.1f s after the kill; its lease lasts %v", victim, took.Seconds(), lease)
	p.wait(generous, victim+" is shown as expelled, or no longer", fmt.Sprintf(`["Expelled", ""].includes(%s?.at(-1))`, states(victim)))
	if got := value[[]string](p, states(victim)); !slices.Contains(got, "Expelled") {
		t.Errorf("the row of %s vanished, and nobody saw that it was expelled: %q", victim, got)
	}
	p.look("killed", 1280, "light")
	textStays(t, w, p)
	took = p.wait(generous, "the others have its slots", settled+" && "+members+" === 2")
	t.Logf("and %.1f s later the others had its slots; the row of %s was %q", took.Seconds(), victim, value[[]string](p, states(victim)))
	agree(t, w, p)

	p.do("add a replica", chromedp.Click("#add", chromedp.ByQuery))
	p.wait(generous, "the new one works", settled+" && "+members+" === 3")
	agree(t, w, p)
	for _, width := range []int64{1280, 400} {
		for _, scheme := range []string{"light", "dark"} {
			p.look("dashboard", width, scheme)
			if got := value[int64](p, "document.documentElement.scrollWidth"); got > width {
				t.Errorf("at %d pixels the page is %d wide", width, got)
			}
		}
	}
	p.look("dashboard", 1280, "light")
	places(t, w, p)
	leave(t, p, leaver)
	p.clean()
	shadow(t, w, browser) // takes the focus from p
	endings(t, w, p, browser)
}

// accessible looks at what a screen reader is told.
func accessible(t *testing.T, p *tab) {
	t.Helper()
	roles := map[string]int{}
	p.do("accessibility tree", chromedp.ActionFunc(func(ctx context.Context) error {
		// Not by the types of cdproto: they refuse what a newer browser may say.
		var tree struct {
			Nodes []struct {
				Ignored bool `json:"ignored"`
				Role    struct {
					Value any `json:"value"`
				} `json:"role"`
				Name struct {
					Value any `json:"value"`
				} `json:"name"`
			} `json:"nodes"`
		}
		err := chromedp.FromContext(ctx).Target.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
		for _, n := range tree.Nodes {
			if n.Ignored {
				continue
			}
			role := fmt.Sprint(n.Role.Value)
			roles[role]++
			switch role {
			case "button", "table", "textbox", "img", "image", "region", "search", "form", "meter":
				if n.Name.Value == nil || n.Name.Value == "" {
					t.Errorf("a %s has no name", role)
				}
			}
		}
		return err
	}))
	for role, least := range map[string]int{
		"main": 1, "banner": 1, "contentinfo": 1, "search": 1, "table": 2, "rowheader": 3, "columnheader": 10, "button": 8,
		"heading": 6, "textbox": 3,
	} {
		if roles[role] < least {
			t.Errorf("%d of role %s, want %d at least; there are %v", roles[role], role, least, roles)
		}
	}
	if roles["img"]+roles["image"] == 0 {
		t.Errorf("the ring is no image with a name: %v", roles)
	}
}

// search asks for an object's member, in the page and with `rota who`.
func search(t *testing.T, w *world, p *tab) {
	t.Helper()
	ask := func(kind, namespace, name string) {
		t.Helper()
		p.do("search", chromedp.SetValue("#who-kind", kind, chromedp.ByQuery),
			chromedp.SetValue("#who-namespace", namespace, chromedp.ByQuery), chromedp.SetValue("#who-name", name, chromedp.ByQuery),
			chromedp.Click("#who-form button", chromedp.ByQuery))
		p.wait(generous, "an answer", `!document.getElementById("who-answer").textContent.startsWith("Looking")`)
	}
	ask("website", namespace+"-sites", evil)
	if n := value[int](p, `document.querySelectorAll("main img").length`); n > 0 {
		t.Error("a name became an element")
	}
	if text := value[string](p, `document.getElementById("who-answer").textContent`); text == "" {
		t.Error("no answer for an object that cannot be")
	}
	var told struct {
		Works, Member string
		Slot          int
	}
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	// The load deletes Websites and makes them again.
	var site string
	for told.Works != "yes" {
		site = anySite(t, w)
		err := w.json(ctx, &told, "who", "website/"+site, "--rota", namespace+"/"+name, "-n", namespace+"-sites")
		if ctx.Err() != nil {
			t.Fatalf("rota who website/%s: %+v, %v", site, told, err)
		}
	}
	ask("website", namespace+"-sites", site)
	field := func(name string) string {
		return value[string](p, fmt.Sprintf(`document.querySelector('#who-answer [data-field="%s"]')?.textContent ?? ""`, name))
	}
	if slot, member := field("slot"), field("member"); slot != fmt.Sprint(told.Slot) || member != told.Member {
		t.Errorf("the page says slot %q of %q, rota who %+v", slot, member, told)
	}
	if answer := field("answer"); !strings.Contains(answer, site) {
		t.Errorf("the page answers %q", answer)
	}
}

func client(t *testing.T, w *world) *kubernetes.Clientset {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// anySite returns the name of a Website.
func anySite(t *testing.T, w *world) string {
	t.Helper()
	return sites(t, w)[0].Name
}

// sites returns the Websites, of which there is always one.
func sites(t *testing.T, w *world) []metav1.PartialObjectMetadata {
	t.Helper()
	raw, err := client(t, w).RESTClient().Get().AbsPath("/apis/web.example.com/v1/namespaces/" + namespace + "-sites/websites").
		DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list.Items) == 0 {
		t.Fatalf("%d Websites, %v", len(list.Items), err)
	}
	return list.Items
}

// textStays makes an event whose message is HTML.
func textStays(t *testing.T, w *world, p *tab) {
	t.Helper()
	now := metav1.Now()
	_, err := client(t, w).CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "evil"},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: namespace, Name: name, APIVersion: "v1"},
		Type:           corev1.EventTypeWarning, Reason: "Example", Message: evil, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "test", Host: evil},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.wait(generous, "the event's text is shown as it is",
		fmt.Sprintf(`document.getElementById("warning-rows").textContent.includes(%q)`, evil))
	if n := value[int](p, `document.querySelectorAll("main img, main script").length`); n > 0 {
		t.Error("an event's message became an element")
	}
}

// endings ends the demo, and then the API server: old data must not look live.
func endings(t *testing.T, w *world, p *tab, browser context.Context) {
	t.Helper()
	server := start(t, "dashboard", w.rota, "dashboard", name, "-n", namespace, "--kubeconfig", w.kubeconfig)
	_, url, _ := strings.Cut(server.until(t, "http://", time.Minute), "http://")
	url, _, _ = strings.Cut("http://"+url, " ")
	second := openTab(t, browser, url, 1280)
	second.wait(generous, "the second dashboard shows the rota", settled+" && "+members+" === 3")
	if value[bool](second, `!document.getElementById("demo").hidden || document.querySelectorAll("main tbody button").length > 0`) {
		t.Error("rota dashboard has buttons for replicas")
	}
	live := `!document.body.classList.contains("stale") && document.getElementById("banner").hidden`
	if !value[bool](second, live) || !value[bool](p, live) {
		t.Error("a page is not live")
	}
	second.clean()

	if err := w.demo.end(t); err != nil {
		t.Errorf("the demo: %v", err)
	}
	if out := w.demo.output(); strings.Contains(out, "FAIL") || !strings.Contains(out, "ok    no Website was ever reconciled by two") ||
		!strings.Contains(out, "ok    no replica wrote to a Website") {
		t.Error("the demo has not judged the run to be good")
	}
	stale := `document.body.classList.contains("stale") && !document.getElementById("banner").hidden &&
	  document.getElementById("age-text").textContent.startsWith("stale") && document.getElementById("banner").textContent.includes(%q)`
	p.wait(generous, "the page says that the dashboard has ended", fmt.Sprintf(stale, "no connection to rota dashboard"))
	if err := w.kube.end(t); err != nil {
		t.Errorf("the control plane: %v", err)
	}
	second.wait(generous, "the page says that the rota cannot be read", fmt.Sprintf(stale, "cannot be read"))
	second.look("lost", 1280, "light")
	second.look("lost", 400, "dark")
	second.do("leave the page", chromedp.Navigate("about:blank")) // with the last page, the last state is forgotten
	third := openTab(t, browser, url, 1280)
	third.wait(generous, "a page without data says why, and nothing else", `document.getElementById("main").hidden &&
	  document.getElementById("banner").textContent.includes("cannot be read")`)
	if err := server.end(t); err != nil {
		t.Errorf("rota dashboard: %v", err)
	}
}

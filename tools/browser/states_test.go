package browser

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// watchRows has the page note each state that the row of a member has from now on, however seldom this test looks.
func watchRows(p *tab) {
	p.t.Helper()
	value[bool](p, `(() => {
	  const body = document.getElementById("member-rows");
	  const noted = window.rowStates = {}; // by Pod, in order; "" is that the row is gone
	  const note = () => {
	    const now = {};
	    for (const tr of body.children) now[tr.firstChild.lastChild.lastChild.textContent] = tr.dataset.state;
	    for (const pod of new Set([...Object.keys(noted), ...Object.keys(now)])) {
	      const states = noted[pod] ??= [];
	      if (states.at(-1) !== (now[pod] ?? "")) states.push(now[pod] ?? "");
	    }
	  };
	  new MutationObserver(note).observe(body, { childList: true, subtree: true, attributeFilter: ["data-state"] });
	  note();
	  return true;
	})()`)
}

// states is what watchRows has noted of a Pod.
func states(pod string) string { return fmt.Sprintf("window.rowStates[%q]", pod) }

// places has people start a canary and pin an object by the command, and looks for both on the page.
func places(t *testing.T, w *world, p *tab) {
	t.Helper()
	do := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), w.rota, append(args, "-n", namespace, "--kubeconfig", w.kubeconfig)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("rota %v: %v\n%s", args, err, out)
		}
	}
	shown := func(what, id, text string) {
		t.Helper()
		p.wait(generous, what, fmt.Sprintf(`document.getElementById(%q).textContent.includes(%q)`, id, text))
	}
	do("canary", "start", name, "--build", "v22", "--steps", "5,20", "--every", "10m", "--expect")
	do("pin", "team-a/huge", name, "--to", "pool=large", "--expect")
	shown("the canary among the facts", "facts", "canary v22: waits for its first member")
	shown("the canary", "setup", "build v22, waits for its first member, asked for")
	shown("the pin", "setup", "to pool=large; slot ")
	p.look("canary", 1280, "light")
	do("unpin", "team-a/huge", name)
	do("canary", "abort", name)
	p.wait(generous, "neither is there", `!document.getElementById("facts").textContent.includes("canary")`)
}

// leave stops a member by its button. It hands its slots over and goes, which is no expel. Then it adds another one.
func leave(t *testing.T, p *tab, pod string) {
	t.Helper()
	p.do("stop "+pod, chromedp.Click(fmt.Sprintf(`button[aria-label="Stop %s"]`, pod), chromedp.ByQuery))
	p.wait(generous, pod+" has left", settled+" && "+members+" === 2")
	if got := value[[]string](p, states(pod)); slices.Contains(got, "Expelled") || got[len(got)-1] != "" {
		t.Errorf("%s left, and its row was %q; want it gone without having been expelled", pod, got)
	}
	p.do("add a replica", chromedp.Click("#add", chromedp.ByQuery))
	p.wait(generous, "another one works", settled+" && "+members+" === 3")
}

package browser

import (
	"fmt"
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

// The search for the member of an object. The answer is the one of `rota who`.
import { byId, element } from "./dom.js";

// words turns the name of a field into words: "sinceEpoch" is "Since epoch".
function words(name) {
  const text = name.replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function lines(value) {
  if (Array.isArray(value)) return value.map(lines).join("\n");
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([k, v]) => `${words(k)}: ${lines(v)}`).join("\n");
  }
  return String(value);
}

export function start() {
  const answer = byId("who-answer");
  let turn = 0;
  byId("who-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const mine = ++turn;
    const question = new URLSearchParams({
      kind: byId("who-kind").value.trim(), namespace: byId("who-namespace").value.trim(), name: byId("who-name").value.trim(),
    });
    answer.replaceChildren(element("p", { class: "quiet" }, "Looking …"));
    let nodes;
    try {
      const response = await fetch(`who?${question}`);
      const body = await response.json();
      nodes = response.ok ? [list(body)] : [element("p", { class: "failed" }, body.error)];
    } catch {
      nodes = [element("p", { class: "failed" }, "There was no answer: is `rota dashboard` still running?")];
    }
    if (mine === turn) answer.replaceChildren(...nodes);
  });
}

function list(body) {
  const dl = element("dl");
  for (const [name, value] of Object.entries(body)) {
    if (value === "" || value === null || (Array.isArray(value) && value.length === 0)) continue;
    const dd = element("dd", {}, lines(value));
    dd.dataset.field = name;
    dl.append(element("div", {}, element("dt", {}, words(name)), dd));
  }
  return dl;
}

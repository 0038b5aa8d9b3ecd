// The search for the member of an object. The answer is the one of `rota who`.
import { byId, element } from "./dom.js";

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
      nodes = response.ok ? render(body) : [element("p", { class: "failed" }, body.error)];
    } catch {
      nodes = [element("p", { class: "failed" }, "There was no answer: is `rota dashboard` still running?")];
    }
    if (mine === turn) answer.replaceChildren(...nodes);
  });
}

// kinds offers the rota's kinds, and fills in the first one that is its own.
export function kinds(rota) {
  const all = (rota.kinds || []).map((kind) => kind.toLowerCase());
  if (!byId("who-kind").value && all.length > 0) [byId("who-kind").value] = all;
  byId("who-kinds").replaceChildren(...all.map((kind) => element("option", { value: kind })));
}

// render shows a Who. Its fields are those of `rota who -o json`.
function render(who) {
  const held = who.held === undefined ? "not known" : who.held ? "yes" : "no";
  const rows = [
    ["also", "reasons", who.reasons.slice(1)],
    ["slot", "slot", who.slot],
    ["sharded by", "by", [who.shardedBy, who.controllingOwner].filter(Boolean).join(" of ")],
    ["member", "member", who.member],
    ["Pod", "pod", who.pod],
    ["since", "since", who.since && `epoch ${who.since.epoch}: ${who.since.text}`],
    ["move", "move", who.move && `${who.move.from || "nobody"} → ${who.move.to}: ${who.move.phase}`],
    ["delivery", "delivery", who.delivery],
    ["held", "held", who.evidence && `${held}: ${who.evidence}`],
    ["note", "notes", who.notes],
  ];
  const dl = element("dl");
  for (const [title, field, value] of rows) {
    for (const text of [value].flat().filter((v) => v !== undefined && v !== null && v !== "")) {
      const dd = element("dd", {}, String(text));
      dd.dataset.field = field;
      dl.append(element("div", {}, element("dt", {}, title), dd));
    }
  }
  const works = who.works === "yes" && ((who.health || []).length > 0 || who.problems.some((p) => p.object)) ? "badly" : who.works;
  const answer = element("p", { class: `works-${works}` }, who.answer);
  answer.dataset.field = "answer";
  const at = new Date().toLocaleTimeString();
  return [answer, dl, element("p", { class: "quiet" }, `This was so at ${at}. Find asks again.`)];
}

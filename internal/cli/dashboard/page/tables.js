// Everything but the ring.
import { byId, element, list, row, say, show } from "./dom.js";
import { ago, canaryState, plural, ranges, shorten, since, span } from "./format.js";
import { nameOf, named } from "./owners.js";
import { emphasize, stateOf } from "./ring.js";

const handoversShown = 12;

// announced are the problems that a screen reader has been told of.
let announced = new Set();

export function problems(rota) {
  const all = rota.problems || [];
  show(byId("no-problems"), all.length === 0);
  show(byId("problem-list"), all.length > 0);
  byId("problems").classList.toggle("bad", all.some((p) => p.severity === "error"));
  const key = (p) => `${p.severity} ${p.what} ${p.member || ""}`;
  const keys = new Map();
  list(byId("problem-list"), all, (p) => {
    const n = keys.get(key(p)) || 0;
    keys.set(key(p), n + 1);
    return `${key(p)} ${n}`;
  }, (p) => {
    const li = element("li", { class: p.severity === "error" ? "error" : "warning" });
    li.append(element("strong"), element("span", { class: "where" }), element("div", {}, element("p"), element("pre")));
    return li;
  }, (li, p) => {
    const [what, where, message] = li.children;
    say(what, `${p.severity === "error" ? "Error" : "Warning"}: ${p.what}`);
    const places = [];
    if (p.member) places.push(nameOf(p.member));
    if (p.object) places.push(p.object);
    if (p.slots) places.push(`${/^\d+$/.test(p.slots) ? "slot" : "slots"} ${shorten(p.slots, 12)}`);
    say(where, places.join(", "));
    fill(message.firstChild, message.lastChild, p);
  });
  const now = new Set(all.map(key));
  const fresh = all.filter((p) => !announced.has(key(p)));
  if (fresh.length > 0) {
    say(byId("announcer"), fresh.map((p) => `${p.what} ${p.member ? nameOf(p.member) : ""}: ${p.message}`).join(" "));
  } else if (now.size === 0 && announced.size > 0) {
    say(byId("announcer"), "No problems any more.");
  }
  announced = now;
}

// fill shows a message. Lines after the first are text to copy, such as a rule: they stay as they are.
function fill(words, block, { message }) {
  const [first, ...rest] = message.split("\n");
  say(words, first);
  say(block, rest.join("\n"));
  show(block, rest.length > 0);
}

// columns of the members' table, in the order of the page.
const columns = ["Member", "State", "Slots", "Duties", "Objects", "Load", "Waiting", "Lease left", "Build", "Age", "Actions"];

// A member that was expelled stays in sight for so long, in milliseconds: it must not vanish before anybody can see it.
const farewell = 10000;

let last = { members: new Map(), expels: new Map() }; // of the state before: members by ID, the latest expels by Pod
const expelled = new Map(); // those that are shown although they are gone, with the time at which that ends

// withExpelled adds the members that were expelled a moment ago. Those that have left, the table has no expel of.
function withExpelled(rota) {
  const now = performance.now();
  const members = rota.members || [];
  const next = {
    members: new Map(members.map((m) => [m.id, m])),
    expels: new Map((rota.expels || []).map((e) => [e.pod, e.at])),
  };
  for (const [id, m] of last.members) {
    if (!next.members.has(id) && next.expels.has(m.pod) && next.expels.get(m.pod) !== last.expels.get(m.pod)) {
      expelled.set(id, { member: { ...m, state: "Expelled", gone: true }, until: now + farewell });
    }
  }
  last = next;
  for (const [id, e] of expelled) if (next.members.has(id) || e.until <= now) expelled.delete(id);
  return [...members, ...[...expelled.values()].map((e) => e.member)].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
}

export function members(rota, act) {
  const all = withExpelled(rota);
  say(byId("members-count"), String((rota.members || []).length));
  byId("members").classList.toggle("acts", Boolean(act));
  list(byId("member-rows"), all, (m) => m.id, (m) => {
    const tr = row(...columns);
    const [, state, slots, duties, objects, load, waiting, lease, , age, actions] = tr.children;
    for (const cell of [slots, duties, objects, load, waiting, age]) cell.classList.add("number");
    state.append(element("span", { class: "state" }), element("small", { class: "why" }));
    slots.append(element("span"), element("small"));
    lease.append(element("meter", { min: 0, class: "lease", "aria-hidden": "true" }), element("span", { class: "left" }));
    actions.classList.add("buttons");
    if (act) {
      for (const [verb, text] of [["stop", "Stop"], ["kill", "Kill"]]) {
        const button = element("button", { type: "button", "aria-label": `${text} ${m.pod}` }, text);
        button.addEventListener("click", () => act(verb, m.pod));
        actions.append(button);
      }
    }
    tr.addEventListener("mouseenter", () => emphasize(m.id));
    tr.addEventListener("mouseleave", () => emphasize(""));
    return tr;
  }, (tr, m) => {
    const [name, state, slots, duties, objects, load, waiting, , build, age] = tr.children;
    named(name, m.id);
    tr.dataset.state = m.state;
    say(state.firstChild, m.state);
    say(state.lastChild, m.gone ? "" : drainText(m.drain));
    if (m.gone) {
      for (const cell of [slots.firstChild, duties, objects, load, waiting]) say(cell, "–");
      say(slots.lastChild, "");
      tr.querySelectorAll("button").forEach((b) => { b.disabled = true; });
      return;
    }
    say(slots.firstChild, String(m.owned));
    const more = [];
    if (m.coming) more.push(`+${m.coming}`);
    if (m.going) more.push(`−${m.going}`);
    if (m.open != null && m.open !== m.owned && m.state !== "Silent") more.push(`(${m.open} open)`);
    say(slots.lastChild, more.length ? ` ${more.join(" ")}` : "");
    say(duties, String(m.duties));
    say(objects, m.objects == null ? "?" : String(m.objects));
    say(load, m.load == null ? "?" : m.load.toFixed(2));
    say(waiting, m.objects == null ? "?" : m.oldestWaitingSeconds == null ? "–" : span(m.oldestWaitingSeconds));
    waiting.classList.toggle("late", (m.oldestWaitingSeconds || 0) > 60);
    say(build, m.build || "–");
    say(age, span(since(rota.at, m.joined)));
  });
}

// drainText says who told a member to give up its slots, and why.
function drainText(drain) {
  if (!drain) return "";
  return ` drain${drain.by ? ` by ${drain.by}` : ""}${drain.reason ? `: ${drain.reason}` : ""}`;
}

// leases shows how much is left of each lease. The data are age seconds old.
export function leases(rota, age) {
  for (const m of rota.members || []) {
    const tr = [...byId("member-rows").children].find((e) => e.dataset.key === m.id);
    if (!tr) continue;
    const [meter, text] = tr.querySelector("meter.lease").parentNode.children;
    if (m.leftSeconds == null) {
      show(meter, false);
      say(text, m.renewed ? "not known" : "no lease");
      continue;
    }
    const seconds = m.leftSeconds - age;
    show(meter, true);
    meter.max = m.leaseSeconds || 1;
    meter.value = Math.max(0, seconds);
    tr.classList.toggle("over", seconds <= 0);
    tr.classList.toggle("short", seconds > 0 && seconds < (m.leaseSeconds || 0) / 3);
    say(text, seconds > 0 ? `${seconds.toFixed(1)} s` : `over for ${span(-seconds)}`);
  }
}

export function moves(rota) {
  const groups = new Map();
  for (const m of rota.moves || []) {
    const key = [m.duty || "", m.from || "", m.to, m.phase].join(" ");
    if (!groups.has(key)) groups.set(key, { ...m, key, pairs: [], seconds: null });
    const g = groups.get(key);
    if (!m.duty) g.pairs.push([m.first, m.last]);
    if (m.seconds != null) g.seconds = Math.max(g.seconds ?? 0, m.seconds);
  }
  const all = [...groups.values()];
  const slots = all.flatMap((g) => g.pairs).reduce((n, [a, b]) => n + b - a + 1, 0);
  say(byId("moves-count"), slots > 0 ? plural(slots, "slot") : "");
  show(byId("no-moves"), all.length === 0);
  show(byId("moves-table"), all.length > 0);
  list(byId("move-rows"), all, (g) => g.key, () => {
    const tr = row("What", "From and to", "Phase", "For");
    tr.children[2].append(element("span"));
    tr.children[3].classList.add("number");
    return tr;
  }, (tr, g) => {
    const [what, path, phase, time] = tr.children;
    say(what, g.duty ? `duty ${g.duty}` : shorten(ranges(g.pairs)));
    named(path, g.from || "", g.to);
    phase.firstChild.className = `phase-name ${g.phase}`;
    say(phase.firstChild, g.phase);
    say(time, g.seconds == null ? "–" : span(g.seconds));
  });
}

export function handovers(rota) {
  const all = (rota.handovers || []).slice(0, handoversShown);
  show(byId("no-handovers"), all.length === 0);
  show(byId("handovers-body"), all.length > 0);
  const total = (h) => h.warmSeconds + h.drainSeconds + h.activateSeconds;
  // Of a few scales, so that a bar has the same length for long.
  const longest = Math.max(...all.map(total));
  const scale = [1, 10, 60, 600].find((s) => s >= longest) || longest;
  say(byId("scale"), `a full bar is ${span(scale)}`);
  list(byId("handover-rows"), all, (h) => [h.epoch, h.duty || "", h.from || "", h.to, h.slots].join(" "), () => {
    const tr = row("Ended", "What", "From and to", "Why", "Phases");
    const bar = element("span", { class: "phases", "aria-hidden": "true" });
    for (const phase of ["warm", "drain", "activate"]) bar.append(element("span", { class: phase }));
    tr.children[4].append(bar, element("span", { class: "took" }));
    return tr;
  }, (tr, h) => {
    const [ended, what, path, why, phases] = tr.children;
    say(ended, ago(since(rota.at, h.ended)));
    ended.title = h.ended;
    say(what, h.duty ? `duty ${h.duty}` : plural(h.count, "slot"));
    what.title = h.slots || "";
    named(path, h.from || "", h.to);
    say(why, h.cause);
    const parts = { warm: h.warmSeconds, drain: h.drainSeconds, activate: h.activateSeconds };
    Object.values(parts).forEach((s, i) => { phases.firstChild.children[i].style.width = `${(100 * s) / scale}%`; });
    say(phases.lastChild, span(total(h)));
    phases.title = Object.entries(parts).map(([name, s]) => `${name} ${span(s)}`).join(", ");
  });
}

export function duties(rota) {
  const all = rota.duties || [];
  show(byId("no-duties"), all.length === 0);
  show(byId("duties-table"), all.length > 0);
  list(byId("duty-rows"), all, (d) => d.name, () => {
    const tr = row("Duty", "Member", "State");
    tr.children[2].append(element("span", { class: "state" }));
    return tr;
  }, (tr, d) => {
    const [name, member, state] = tr.children;
    say(name, d.name);
    named(member, ...(d.next ? [d.owner || "", d.next] : [d.owner || ""]));
    tr.dataset.state = d.state;
    say(state.firstChild, d.state);
  });
}

// shadow shows what the members of a shadow would have.
export function shadow(rota) {
  show(byId("shadow"), Boolean(rota.shadow));
  const rows = (rota.shadow?.kinds || []).flatMap((k) => [
    { kind: k.kind, objects: k.objects, share: 1, changes: k.changesPerMinute, labels: k.labels },
    ...k.members.map((m) => ({ ...m, kind: k.kind })),
  ]);
  show(byId("no-shadow"), rows.length === 0);
  show(byId("shadow-table"), rows.length > 0);
  list(byId("shadow-rows"), rows, (r) => `${r.kind} ${r.member || ""}`, () => {
    const tr = row("Would have", "Member", "Objects", "Share", "Changes per minute", "Labels to write");
    for (const cell of [...tr.children].slice(2)) cell.classList.add("number");
    return tr;
  }, (tr, r) => {
    const [kind, member, objects, share, changes, labels] = tr.children;
    say(kind, r.kind);
    if (r.member) named(member, r.member);
    else say(member, "all of them");
    say(objects, String(r.objects));
    say(share, `${Math.round(100 * r.share)} %`);
    say(changes, r.changes == null ? "–" : r.changes.toFixed(1));
    say(labels, r.labels == null ? "–" : String(r.labels));
  });
}

// worst shows the objects whose reconciles hang or fail.
export function worst(rota) {
  const all = rota.worst || [];
  show(byId("worst"), all.length > 0);
  const path = (k) => (k.namespace ? `${k.namespace}/${k.name}` : k.name);
  list(byId("worst-rows"), all, (k) => `${k.member} ${k.controller} ${k.kind} ${path(k)}`,
    () => row("Object", "Member", "Controller", "What"), (tr, k) => {
      const [object, member, controller, what] = tr.children;
      say(object, `${k.kind.split(".")[0]} ${path(k)}`);
      object.title = `${k.kind}, slot ${k.slot}`;
      named(member, k.member);
      say(controller, k.controller);
      say(what, k.text);
    });
}

export function runs(rota) {
  list(byId("run-rows"), rota.runs || [], (r) => `${r.first}-${r.last}`, () => row("Slots", "Owner", "State"), (tr, r) => {
    const [slots, owner, state] = tr.children;
    say(slots, r.first === r.last ? `${r.first}` : `${r.first}-${r.last}`);
    named(owner, r.owner || "");
    say(state, stateOf(r, rota));
  });
}

export function warnings(rota) {
  const newest = [...(rota.warnings || [])].reverse();
  const all = newest.filter((w) => !w.over && w.reason !== "SlotHeldBack"); // that one is a problem
  const over = new Map();
  for (const w of newest) if (w.over) over.set(w.reason, (over.get(w.reason) || 0) + 1);
  show(byId("warnings"), all.length + over.size > 0);
  show(byId("warning-table"), all.length > 0);
  show(byId("earlier"), over.size > 0);
  const counts = [...over].sort().map(([reason, n]) => `${reason} (${n})`);
  say(byId("earlier"), `Earlier, and over: ${counts.join(", ")}. rota status -o wide lists them.`);
  const seen = new Map();
  list(byId("warning-rows"), all, (w) => {
    const key = `${w.at} ${w.reason} ${w.member || ""}`;
    seen.set(key, (seen.get(key) || 0) + 1);
    return `${key} ${seen.get(key)}`;
  }, () => {
    const tr = row("At", "Reason", "Member", "Message");
    tr.children[3].append(element("span"), element("pre"));
    return tr;
  }, (tr, w) => {
    const [at, reason, member, message] = tr.children;
    say(at, ago(since(rota.at, w.at)));
    at.title = w.at;
    say(reason, w.reason);
    say(member, w.about || w.id || w.member ? nameOf(w.about || w.id || w.member) : "–");
    fill(message.firstChild, message.lastChild, w);
  });
}

// canaryText says how far a canary is, and what it is judged by.
function canaryText(rota) {
  const c = rota.canary;
  const asked = `${ago(since(rota.at, c.since))}${c.by ? ` by ${c.by}` : ""}${c.reason ? `: ${c.reason}` : ""}`;
  if (c.state === "WentBack") return `build ${c.build} went back: ${c.verdict}`;
  const text = `build ${c.build}, ${canaryState(c)}, asked for ${asked}; ${plural(c.members, "member")} with ` +
    `${c.owned} of ${plural(c.slots, "slot")}`;
  return c.text ? `${text}. ${c.judged}: ${c.text}` : text;
}

export function setup(rota) {
  const lines = rota.shadow ? [] : [["Fence", rota.fence || "not known"]]; // a shadow writes nothing to be refused
  if (rota.pause) {
    const p = rota.pause;
    lines.push(["Moves", `paused ${ago(since(rota.at, p.since))}${p.by ? ` by ${p.by}` : ""}${p.reason ? `: ${p.reason}` : ""}`]);
  }
  if (rota.canary) lines.push(["Canary", canaryText(rota)]);
  (rota.pins || []).forEach((p) => lines.push([`Pin of ${p.object}`,
    `to ${p.labels}; slot ${p.slot} is with ${p.owner ? nameOf(p.owner) : "nobody"}${p.met ? "" : ", which has not these labels"}`]));
  (rota.differences || []).forEach((d) => lines.push(["Members differ", d]));
  (rota.unknown || []).forEach((u) => lines.push([`${u.what}: not known`, u.error]));
  show(byId("more"), lines.length > 0);
  list(byId("setup"), lines.map(([k, v], i) => ({ k, v, i })), (l) => `${l.i} ${l.k}`,
    () => element("div", {}, element("dt"), element("dd")), (div, l) => {
      say(div.firstChild, l.k);
      say(div.lastChild, l.v);
    });
}


// The ring of slots: owners on the outer band, moves on the inner one, problems outside.
import { shape, say, list } from "./dom.js";
import { of, nameOf } from "./owners.js";
import { parseRanges, plural } from "./format.js";

const size = 400;
const outer = [138, 166];
const inner = { warm: [129, 133], drain: [123, 133], activate: [115, 133] };
const marks = [170, 177];

let parts;

// build makes the empty ring.
export function build(parent) {
  const title = shape("title", { id: "ring-name" });
  const text = shape("desc", { id: "ring-text" });
  const layer = (name) => shape("g", { class: name });
  parts = {
    title, text, bands: layer("bands"), moves: layer("moves"), marks: layer("marks"), letters: layer("letters"),
    numbers: layer("numbers"), big: shape("text", { class: "big", x: 0, y: -2 }),
    small: shape("text", { class: "small", x: 0, y: 24 }), state: shape("text", { class: "small state", x: 0, y: 46 }),
  };
  const svg = shape("svg", {
    viewBox: `${-size / 2} ${-size / 2} ${size} ${size}`, role: "img", "aria-labelledby": "ring-name",
    "aria-describedby": "ring-text",
  }, title, text, hatches(), parts.bands, parts.moves, parts.marks, parts.letters, parts.numbers, parts.big,
  parts.small, parts.state);
  parent.replaceChildren(svg);
}

// hatches are the patterns that lie over the colors of further members, and over slots of nobody.
function hatches() {
  const lines = (id, angle) => shape("pattern", {
    id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})`,
  }, shape("rect", { width: 2, height: 6, class: "hatch" }));
  const dots = shape("pattern", { id: "hatch-2", width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    shape("circle", { cx: 3, cy: 3, r: 1.5, class: "hatch" }));
  return shape("defs", {}, lines("hatch-1", 45), dots, lines("hatch-nobody", -45));
}

// point is on the circle of radius r, at the beginning of a slot. Slot 0 is at the top.
function point(r, slot, slots) {
  const angle = (2 * Math.PI * slot) / slots - Math.PI / 2;
  return [r * Math.cos(angle), r * Math.sin(angle)];
}

// arc is the path of slots first to last between two radii.
function arc(first, last, slots, [near, far]) {
  const end = last + 1;
  if (end - first >= slots) { // a circle has no beginning and end
    const circle = (r, sweep) => `M0 ${-r}A${r} ${r} 0 1 ${sweep} 0 ${r}A${r} ${r} 0 1 ${sweep} 0 ${-r}Z`;
    return circle(far, 1) + circle(near, 0);
  }
  const large = (end - first) / slots > 0.5 ? 1 : 0;
  const at = (r, slot) => point(r, slot, slots).map((v) => v.toFixed(2)).join(" ");
  return `M${at(far, first)}A${far} ${far} 0 ${large} 1 ${at(far, end)}` +
    `L${at(near, end)}A${near} ${near} 0 ${large} 0 ${at(near, first)}Z`;
}

const slotsOf = (r) => (r.first === r.last ? `slot ${r.first}` : `slots ${r.first} to ${r.last}`);

// stateOf says in words what a run of slots does.
export function stateOf(r, rota) {
  const states = [];
  if (!r.owner) states.push("no member owns them");
  if (r.next) states.push(`${r.ready ? "ready to move" : "moving"} to ${nameOf(r.next)}`);
  if (r.activating) states.push("activating");
  if (rota.shadow) states.push("would be worked on");
  else if (r.closed) states.push("not admitting keys");
  return states.join(", ") || "worked on";
}

// render draws a rota.
export function render(rota) {
  const n = rota.slots;
  const runs = rota.runs || [];
  paths(parts.bands, runs.map((r) => {
    const o = of(r.owner);
    const look = !r.owner ? "nobody" : o ? `owner-${o.color}` : "unknown";
    return {
      key: `${r.first}-${r.last}`, owner: r.owner || "", look, d: arc(r.first, r.last, n, outer),
      pattern: !r.owner ? "hatch-nobody" : o?.pattern ? `hatch-${o.pattern}` : "",
      text: `${slotsOf(r)}: ${nameOf(r.owner)}, ${stateOf(r, rota)}`,
    };
  }));
  const moves = (rota.moves || []).filter((m) => !m.duty);
  paths(parts.moves, moves.map((m) => {
    const o = of(m.to);
    return {
      key: `${m.first}-${m.last}`, owner: m.to, look: `${o ? `owner-${o.color}` : "unknown"} ${m.phase}`, pattern: "",
      d: arc(m.first, m.last, n, inner[m.phase] || inner.drain),
      text: `${slotsOf(m)}: ${m.phase}, from ${nameOf(m.from)} to ${nameOf(m.to)}`,
    };
  }));
  const bad = [];
  for (const p of rota.problems || []) {
    for (const [first, last] of parseRanges(p.slots)) {
      if (first < n) bad.push({ first, last: Math.min(last, n - 1), severity: p.severity, text: p.what });
    }
  }
  paths(parts.marks, bad.map((b, i) => ({
    key: `${i}`, owner: "", look: b.severity === "error" ? "error" : "warning", pattern: "",
    d: arc(b.first, b.last, n, marks), text: `${slotsOf(b)}: ${b.text}`,
  })));
  letters(runs, n);
  numbers(n);
  describe(rota, runs, moves, n);
}

// paths keeps one path, and perhaps a pattern over it, for each item.
function paths(layer, items) {
  list(layer, items, (i) => i.key, () => shape("g", {}, shape("path", {}, shape("title")), shape("path")), (g, i) => {
    const [fill, over] = g.children;
    set(fill, "d", i.d);
    set(fill, "class", i.look);
    say(fill.firstChild, i.text);
    set(over, "d", i.pattern ? i.d : "");
    set(over, "class", "over");
    set(over, "fill", i.pattern ? `url(#${i.pattern})` : "none");
    g.dataset.owner = i.owner;
  });
}

function set(e, name, value) {
  if (e.getAttribute(name) !== String(value)) e.setAttribute(name, value);
}

// letters stand beside long stretches of slots, and beside the longest one of each owner.
function letters(runs, n) {
  const stretches = [];
  for (const r of runs) {
    const before = stretches.at(-1);
    if (before && before.owner === r.owner && before.last + 1 === r.first) before.last = r.last;
    else stretches.push({ first: r.first, last: r.last, owner: r.owner });
  }
  const longest = new Map();
  for (const s of stretches) {
    const best = longest.get(s.owner);
    if (!best || s.last - s.first > best.last - best.first) longest.set(s.owner, s);
  }
  const chosen = stretches.filter((s) => of(s.owner) && ((s.last - s.first + 1) / n >= 0.03 || longest.get(s.owner) === s));
  list(parts.letters, chosen, (s) => `${s.first}-${s.last}-${s.owner}`, () => shape("text"), (e, s) => {
    const [x, y] = point(188, (s.first + s.last + 1) / 2, n);
    set(e, "x", x.toFixed(1));
    set(e, "y", y.toFixed(1));
    e.dataset.owner = s.owner;
    say(e, of(s.owner).letter);
  });
}

function numbers(n) {
  list(parts.numbers, [0, n / 4, n / 2, (3 * n) / 4], String, () => shape("text"), (e, s) => {
    const [x, y] = point(101, s, n);
    set(e, "x", x.toFixed(1));
    set(e, "y", y.toFixed(1));
    say(e, String(s));
  });
}

function describe(rota, runs, moves, n) {
  const count = (of_) => of_.reduce((sum, r) => sum + r.last - r.first + 1, 0);
  const nobody = count(runs.filter((r) => !r.owner));
  const moving = count(moves);
  say(parts.big, `${n - nobody}/${n}`);
  say(parts.small, "slots owned");
  const state = nobody > 0 ? `${nobody} unowned` : moving > 0 ? `${moving} moving` : "";
  say(parts.state, state);
  parts.state.setAttribute("class", nobody > 0 ? "small state bad" : "small state");
  say(parts.title, `${plural(n, "slot")}: ${n - nobody} owned, ${nobody} unowned, ${moving} moving`);
  const shares = (rota.members || []).map((m) => `${nameOf(m.id)} ${m.owned}`).join(", ");
  say(parts.text, `Owned by each member: ${shares || "there are no members"}. The table below lists all runs of slots.`);
}

// emphasize dims what is not the owner's; "": nothing is dimmed.
export function emphasize(owner) {
  for (const layer of [parts.bands, parts.moves, parts.letters]) {
    for (const e of layer.children) e.classList.toggle("dim", owner !== "" && e.dataset.owner !== owner);
  }
}

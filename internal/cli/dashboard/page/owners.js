// Each member has a letter and a color. It keeps them as long as the page is open, so that a color never means another
// member from one moment to the next.
import { element } from "./dom.js";

// colors is the number of colors in style.css. Further members have the same ones with other patterns.
const colors = 6;
const patterns = 3;

const seen = new Map(); // by ID: {letter, color, pattern, name, here}

// learn gives members their letters: those that are new the lowest free ones.
export function learn(members) {
  for (const o of seen.values()) o.here = false;
  for (const m of members) if (seen.has(m.id)) seen.get(m.id).here = true;
  const used = new Set([...seen.values()].filter((o) => o.here).map((o) => o.index));
  // The letters of those that went last are kept for a while: handovers still name them.
  const gone = [...seen.entries()].filter(([, o]) => !o.here).slice(-colors);
  for (const [, o] of gone) used.add(o.index);
  for (const [id, o] of seen) if (!o.here && !gone.some(([k]) => k === id)) seen.delete(id);
  for (const m of members) {
    if (!seen.has(m.id)) {
      let index = 0;
      while (used.has(index)) index++;
      used.add(index);
      seen.set(m.id, { index, here: true });
    }
    const o = seen.get(m.id);
    o.name = m.pod || m.id;
    o.letter = letters(o.index);
    o.color = o.index % colors;
    o.pattern = Math.floor(o.index / colors) % patterns;
  }
}

function letters(index) {
  const letter = String.fromCharCode(65 + (index % 26));
  return index < 26 ? letter : letter + Math.floor(index / 26);
}

// of returns what is known of a member, by its ID.
export const of = (id) => seen.get(id);

// nameOf is the name of a member's Pod, or its ID.
export const nameOf = (id) => (id ? (seen.get(id)?.name ?? id) : "nobody");

// badge shows a member's letter in its color.
// fresh: that nobody had it is how it should be, as at the start of a rota.
export function badge(id, fresh = false) {
  const o = seen.get(id);
  const e = element("span", { class: "badge", "aria-hidden": "true" }, o ? o.letter : id ? "·" : "–");
  if (o) e.classList.add(`owner-${o.color}`, `pattern-${o.pattern}`);
  else if (!id && !fresh) e.classList.add("nobody");
  return e;
}

// named is a badge and a name. What is in it is replaced only when it changes.
export function named(parent, ...ids) {
  const fresh = ids.length > 1; // from nobody to a member
  const text = ids.map((id) => `${id}|${seen.get(id)?.letter}|${nameOf(id)}`).join("→");
  if (parent.dataset.named === text) return;
  parent.dataset.named = text;
  const nodes = [];
  ids.forEach((id, i) => {
    if (i > 0) nodes.push(element("span", { class: "arrow", "aria-label": "to" }, " → "));
    nodes.push(element("span", { class: "member", title: id || "" }, badge(id, fresh), nameOf(id)));
  });
  parent.replaceChildren(...nodes);
}

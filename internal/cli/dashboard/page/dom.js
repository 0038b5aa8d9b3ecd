// What is shown comes from a cluster: it becomes text, never HTML.

export const byId = (id) => document.getElementById(id);

// element makes an element with attributes. A child is a node or text.
export function element(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// shape makes an element of SVG.
export function shape(tag, attributes = {}, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// say sets the text of an element, if it is another.
export function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// list keeps one child of parent for each item, in the order of the items. Children stay while their key does, and so
// does the focus in them. make returns a child, update fills it.
export function list(parent, items, key, make, update) {
  const before = new Map();
  for (const child of parent.children) before.set(child.dataset.key, child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    let child = before.get(k);
    if (child) {
      before.delete(k);
    } else {
      child = make(item);
      child.dataset.key = k;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update(child, item);
  }
  for (const child of before.values()) child.remove();
}

// row makes a table row whose cells have the names of their columns, for narrow screens. Roles are explicit, because
// some browsers drop them from tables that are laid out in another way.
export function row(...columns) {
  const tr = element("tr", { role: "row" });
  columns.forEach((name, i) => {
    const cell = element(i === 0 ? "th" : "td", { role: i === 0 ? "rowheader" : "cell" });
    if (i === 0) cell.scope = "row";
    cell.dataset.label = name;
    tr.append(cell);
  });
  return tr;
}

// tables gives the fixed parts of the page's tables their roles.
export function tables() {
  for (const t of document.querySelectorAll("table.cards")) {
    t.setAttribute("role", "table");
    for (const part of t.querySelectorAll("thead, tbody")) part.setAttribute("role", "rowgroup");
    for (const tr of t.querySelectorAll("thead tr")) tr.setAttribute("role", "row");
    for (const th of t.querySelectorAll("thead th")) th.setAttribute("role", "columnheader");
  }
}

// show hides an element, or does not.
export function show(e, visible) {
  if (e.hidden === visible) e.hidden = !visible;
}

// Menu, versions and search. Everything comes from the site itself: the index is a script, so that search works in a
// folder of files, too, where fetch does not.
import MiniSearch from "minisearch";

const root = document.currentScript.dataset.root;
const $ = (id) => document.getElementById(`site-${id}`);
document.documentElement.classList.add("js");

const menu = $("menu"), button = $("menu-button");
button.addEventListener("click", () => {
  const open = menu.classList.toggle("open");
  button.setAttribute("aria-expanded", open);
});
menu.querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
scrollTo(0, 0); // scrollIntoView may have moved the page

$("version").addEventListener("change", (e) => location.assign(e.target.value));

const query = $("query"), results = $("results");
let index;

// load makes the index once, at the first search.
function load() {
  index ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root + "search-index.js";
    script.onerror = () => reject(new Error("search-index.js cannot be read"));
    script.onload = () => {
      const search = new MiniSearch({
        fields: ["heading", "page", "text"],
        storeFields: ["page", "heading", "url", "text"],
        // Names of flags, metrics and fields count whole and in parts.
        tokenize: (text) => [...text.matchAll(/[\p{L}\p{N}_.-]+/gu)].flatMap(([word]) => {
          const trimmed = word.replace(/^[.-]+|[.-]+$/g, "");
          const parts = trimmed.split(/[_.-]+/);
          return parts.length > 1 ? [trimmed, ...parts] : [trimmed];
        }).filter(Boolean),
        searchOptions: { boost: { heading: 4, page: 2 }, prefix: true, fuzzy: (term) => (term.length > 5 ? 0.2 : 0), combineWith: "AND" },
      });
      search.addAll(window.searchIndex.map((entry, id) => ({ id, ...entry })));
      resolve(search);
    };
    document.head.append(script);
  });
  return index;
}

function close() {
  results.hidden = true;
  query.setAttribute("aria-expanded", false);
  query.removeAttribute("aria-activedescendant");
}

// excerpt is what is around the longest word found.
function excerpt(text, words) {
  const lower = text.toLowerCase();
  const found = words.toSorted((a, b) => b.length - a.length).map((w) => lower.indexOf(w)).find((i) => i >= 0) ?? 0;
  const from = found > 60 ? text.lastIndexOf(" ", found - 50) + 1 : 0; // whole words
  const to = text.length > from + 160 ? text.lastIndexOf(" ", from + 160) : text.length;
  return (from > 0 ? "… " : "") + text.slice(from, to) + (to < text.length ? " …" : "");
}

function item(entry, i) {
  const li = document.createElement("li"), a = document.createElement("a"), text = document.createElement("span");
  li.id = `result-${i}`;
  li.setAttribute("role", "option");
  a.href = root + entry.url;
  a.tabIndex = -1;
  a.textContent = entry.heading ? `${entry.page}: ${entry.heading}` : entry.page;
  text.textContent = excerpt(entry.text, entry.terms);
  li.append(a, text);
  li.addEventListener("click", () => { close(); location.assign(a.href); });
  return li;
}

async function find() {
  const words = query.value.trim();
  if (!words) return close();
  const found = (await load()).search(words).slice(0, 12);
  if (query.value.trim() !== words) return; // another letter came meanwhile
  results.replaceChildren(...found.map(item));
  if (!found.length) {
    const li = document.createElement("li");
    li.className = "none";
    li.setAttribute("role", "option");
    li.setAttribute("aria-disabled", true);
    li.textContent = "Nothing found";
    results.append(li);
  }
  results.hidden = false;
  query.setAttribute("aria-expanded", true);
  select(found.length ? 0 : -1);
}

let selected = -1;
function select(i) {
  const all = results.querySelectorAll("li[id]");
  selected = all.length ? (i + all.length) % all.length : -1;
  all.forEach((li, k) => li.setAttribute("aria-selected", k === selected));
  if (selected < 0) return query.removeAttribute("aria-activedescendant");
  query.setAttribute("aria-activedescendant", all[selected].id);
  all[selected].scrollIntoView({ block: "nearest" });
}

query.addEventListener("input", find);
query.addEventListener("focus", () => { load(); if (query.value) find(); });
query.addEventListener("keydown", (e) => {
  if (e.key === "ArrowDown" || e.key === "ArrowUp") {
    e.preventDefault();
    select(selected + (e.key === "ArrowDown" ? 1 : -1));
  } else if (e.key === "Enter") {
    results.querySelector("[aria-selected=true]")?.click();
  } else if (e.key === "Escape") {
    close();
  }
});
document.addEventListener("click", (e) => { if (!$("search").contains(e.target)) close(); });
document.addEventListener("keydown", (e) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
  if ((e.key === "/" && !typing) || (e.key === "k" && (e.ctrlKey || e.metaKey))) {
    e.preventDefault();
    query.focus();
    query.select();
  }
});

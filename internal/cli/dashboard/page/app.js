// The page gets each state of the rota as a server-sent event, and never shows an old one as if it were new.
import { byId, say, show, tables } from "./dom.js";
import { canaryState, plural } from "./format.js";
import { learn } from "./owners.js";
import * as ring from "./ring.js";
import * as view from "./tables.js";
import * as who from "./who.js";

// Data this old, in seconds, count as stale. A connection that is silent for as long counts as lost.
const stale = 5;

let rota = null; // the last state
let age = 0; // its age in seconds when it came
let came = 0; // when it came, and when anything came, in milliseconds of performance.now
let heard = performance.now();
let lost = ""; // why the dashboard cannot read the rota
let act = null; // does what a button says; null: there are no buttons

const ageNow = () => age + (performance.now() - came) / 1000;

function render() {
  learn(rota.members || []);
  const facts = [plural(rota.slots, "slot"), `by ${rota.key}`, plural((rota.members || []).length, "member"),
    `epoch ${rota.epoch}`];
  if (rota.shadow) facts.unshift("SHADOW");
  if (rota.pause) facts.push("moves are paused");
  if (rota.canary) facts.push(`canary ${rota.canary.build}: ${canaryState(rota.canary)}`);
  say(byId("facts"), facts.join(" · "));
  view.problems(rota);
  view.shadow(rota);
  ring.render(rota);
  view.members(rota, act);
  view.leases(rota, ageNow());
  view.moves(rota);
  view.worst(rota);
  view.handovers(rota);
  view.duties(rota);
  view.runs(rota);
  view.warnings(rota);
  view.setup(rota);
  who.kinds(rota);
}

// tick shows the age of the data, and greys them when they are old.
function tick() {
  const silent = (performance.now() - heard) / 1000;
  const old = rota !== null && ageNow() > stale;
  let problem = "";
  if (silent > stale) {
    problem = "There is no connection to rota dashboard. Is it still running? This page connects again by itself.";
  } else if (lost) {
    problem = `The rota cannot be read: ${lost.replace(/\.?$/, ".")}`;
  } else if (old) {
    problem = "The API server answers slowly.";
  }
  if (problem && rota) problem += " What you see below is old.";
  const gray = Boolean(problem) || rota === null;
  document.body.classList.toggle("connecting", rota === null && !problem);
  show(byId("connecting"), rota === null && !problem);
  document.body.classList.toggle("stale", gray);
  show(byId("banner"), Boolean(problem));
  say(byId("banner"), problem);
  say(byId("age-text"), rota === null ? "no data yet" : `${gray ? "stale" : "live"} · ${ageNow().toFixed(1)} s old`);
  if (rota && !gray) view.leases(rota, ageNow());
}

function connect() {
  const source = new EventSource("events");
  const on = (name, do_) => source.addEventListener(name, (event) => {
    heard = performance.now();
    const m = JSON.parse(event.data);
    do_(m);
    if (m.rota) {
      rota = m.rota;
      age = m.age || 0;
      came = performance.now();
      render();
      show(byId("main"), true); // before, it would say that there is nothing
    }
    tick();
  });
  on("rota", () => { lost = ""; });
  on("lost", (m) => { lost = m.error; });
  on("alive", () => {});
  source.addEventListener("error", () => {
    // A refused connection is not tried again by the browser itself.
    if (source.readyState === EventSource.CLOSED) {
      source.close();
      setTimeout(connect, 2000);
    }
  });
}

async function start() {
  tables();
  ring.build(byId("ring"));
  let config;
  for (;;) {
    try {
      config = await (await fetch("config")).json();
      break;
    } catch {
      tick();
      await new Promise((done) => { setTimeout(done, 1000); });
    }
  }
  const name = `${config.namespace}/${config.name}`;
  say(byId("title"), name);
  document.title = `${name} · Rota`;
  say(byId("command"), `rota status ${config.name} -n ${config.namespace}`);
  if (config.who) {
    show(byId("who"), true);
    who.start();
  }
  if (config.replicas) {
    const demo = await import("./demo.js");
    act = demo.start(config.token);
  }
  connect();
  setInterval(tick, 250);
}

start();

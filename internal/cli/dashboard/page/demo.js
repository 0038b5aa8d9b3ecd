// The buttons of `rota-demo --dashboard`.
import { byId, say, show } from "./dom.js";

const done = { add: "is starting", stop: "got SIGTERM", kill: "got SIGKILL" };

// start shows the buttons, and returns what does as they say.
export function start(token) {
  const act = async (verb, pod = "") => {
    const line = byId("done");
    try {
      const response = await fetch(`replicas/${verb}?${new URLSearchParams({ pod })}`, {
        method: "POST", headers: { "X-Rota-Token": token },
      });
      const body = await response.json();
      line.classList.toggle("failed", !response.ok);
      say(line, response.ok ? `${body.pod} ${done[verb]}.` : body.error);
    } catch {
      line.classList.add("failed");
      say(line, "There was no answer: is the demo still running?");
    }
  };
  byId("add").addEventListener("click", () => act("add"));
  show(byId("demo"), true);
  return act;
}

// seconds as people read them: 0.25 s, 9.8 s, 42 s, 3 min, 5 h, 2 d.
export function span(s) {
  if (s < 0) return "0 s";
  if (s < 1) return `${s.toFixed(2)} s`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

// since is how long before now a time was, in seconds. Clocks may differ a little.
export const since = (now, at) => Math.max(0, (Date.parse(now) - Date.parse(at)) / 1000);

export const ago = (s) => (s < 1 ? "just now" : `${span(s)} ago`);

export const plural = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

// canaryState says how far a canary is.
export function canaryState(c) {
  if (c.state === "Awaited") return "waits for its first member";
  if (c.state === "Promoted") return "promoted";
  if (c.state === "WentBack") return "went back";
  const share = c.steps[c.step] ? `${c.steps[c.step]} %` : "its namespaces";
  return `step ${c.step + 1} of ${c.steps.length}, ${share}`;
}

// ranges joins [first, last] pairs as text: "0-15 17".
export function ranges(pairs) {
  const sorted = [...pairs].sort((a, b) => a[0] - b[0]);
  const out = [];
  for (const [first, last] of sorted) {
    const end = out.at(-1);
    if (end && end[1] + 1 >= first) end[1] = Math.max(end[1], last);
    else out.push([first, last]);
  }
  return out.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(" ");
}

// parseRanges is the inverse of ranges.
export function parseRanges(text) {
  const out = [];
  for (const word of (text || "").split(/[\s,]+/)) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(word);
    if (match) out.push([Number(match[1]), Number(match[2] ?? match[1])]);
  }
  return out;
}

// shorten cuts a list of ranges, and says how much there is.
export function shorten(text, words = 6) {
  const all = (text || "").split(" ");
  return all.length > words ? `${all.slice(0, words).join(" ")} … (${all.length} runs)` : all.join(" ");
}

// What stands around the map: where one is, the cluster in numbers, and what the colours mean.

import { RAMPS, isDark } from "./colour.js";
import { el, percent } from "./text.js";

/** Sets that the legend names. */
const KEYS_MAX = 6;

/** Where the map is, from the whole cluster inwards. */
export function crumbs(shown, enter) {
  const steps = [];
  for (let domain = shown; domain !== null; domain = domain.parent) steps.unshift(domain);
  return steps.map((domain) => {
    const name = domain.parent === null ? "Cluster" : domain.name;
    const isHere = domain === shown;
    return el(
      "li",
      {},
      isHere
        ? el("span", { "aria-current": "location" }, name)
        : el("button", { class: "link", onclick: () => enter(domain) }, name),
    );
  });
}

/** The cluster in four numbers. */
export function summary(root, world) {
  const gangs = [...world.gangs.values()];
  const waiting = gangs.filter((gang) => gang.state === "pending").length;
  const degraded = gangs.filter((gang) => gang.state === "degraded").length;
  const running = gangs.filter((gang) => gang.state === "running").length;
  const facts = [
    ["hosts", root.hostCount.toLocaleString("en"), "hosts"],
    [
      "gpus",
      `${root.used.toLocaleString("en")} / ${root.gpus.toLocaleString("en")}`,
      `GPUs in use, ${percent(root.used, root.gpus)}`,
    ],
    ["running", String(running), running === 1 ? "gang runs" : "gangs run"],
    ["pending", String(waiting), waiting === 1 ? "waits" : "wait"],
  ];
  if (degraded > 0) facts.push(["degraded", String(degraded), "degraded"]);
  return facts.map(([key, value, word]) =>
    el(
      "div",
      { class: key === "degraded" || (key === "pending" && waiting > 0) ? "fact alert" : "fact", "data-fact": key },
      el("strong", {}, value),
      el("span", {}, word),
    ),
  );
}

/** What the colours mean. */
export function legend(colour, world, palette) {
  const item = (fill, text, pattern = "plain") => {
    const mark = el("span", { class: `swatch ${pattern}`, "aria-hidden": "true" });
    mark.style.setProperty("--colour", fill);
    return el("span", { class: "key" }, mark, text);
  };
  const ramp = (colours, from, to) => {
    const bar = el("span", { class: "ramp", "aria-hidden": "true" });
    const ordered = isDark() ? [...colours].reverse() : colours;
    bar.style.background = `linear-gradient(to right, ${ordered.join(", ")})`;
    return el("span", { class: "key" }, from, bar, to);
  };
  const parts = [];
  if (colour === "load") {
    parts.push(item("var(--map-free)", "no GPU of the host in use"), ramp(RAMPS.load, "few", "all"));
  } else if (colour === "free") {
    parts.push(
      ramp(RAMPS.free, "free, and no other host of the rack", "all hosts of the rack"),
      item("var(--map-dimmed)", "in use"),
    );
  } else {
    const sets = world.sets();
    const placed = sets.filter((set) => set.gangs.some((gang) => gang.placed > 0));
    for (const set of placed.slice(0, KEYS_MAX)) {
      const look = palette.of(set.gangs[0]);
      parts.push(item(look.colour, set.name, look.pattern));
    }
    if (placed.length > KEYS_MAX)
      parts.push(el("span", { class: "key quiet" }, `and ${placed.length - KEYS_MAX} more`));
    parts.push(item("var(--map-free)", "free"));
  }
  return parts;
}

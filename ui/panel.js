// What is read beside the map: the gangs, the answer to a search, and all about what is selected.

import { STATES, WAITING, age, count, el, names, percent } from "./text.js";
import { at, below, homeOf, keyOf, nearest, waits } from "./world.js";

/** Rows of one list; a page with more is searched, not scrolled. */
const ROWS_MAX = 100;

/**
 * @typedef {{
 *   world: import("./world.js").World, root: import("./world.js").Domain, palette: import("./colour.js").Palette,
 *   selection: any, query: string, pods: any[] | "lost" | null, now: number,
 *   select: (selection: any) => void, enter: (domain: any) => void,
 * }} View
 */

/** @param {View} view */
export function panel(view) {
  if (view.query !== "") return results(view);
  if (view.selection === null) return overview(view);
  const back = el("button", { class: "back", onclick: () => view.select(null) }, "← All gangs");
  const parts = { gang: gangDetail, domain: domainDetail, host: hostDetail }[view.selection.kind](view);
  return [back, ...parts];
}

function overview(view) {
  const { world } = view;
  if (!world.isLoaded) return [el("p", { class: "quiet" }, "Waiting for the cluster…")];
  const sets = world.sets();
  if (sets.length === 0) {
    return [
      el("h2", {}, "No gangs yet"),
      el("p", {}, "A PodCliqueSet becomes gangs as soon as it is applied:"),
      command("kubectl apply -f examples/simple.yaml"),
    ];
  }
  const parts = [];
  for (const state of ["degraded", "pending"]) {
    const waiting = sets.flatMap((set) => set.gangs.filter((gang) => gang.state === state));
    if (waiting.length === 0) continue;
    parts.push(el("h2", {}, `${STATES[state]} (${waiting.length})`));
    parts.push(el("ul", { class: "cards" }, ...limited(waiting, (gang) => el("li", {}, pendingCard(gang, view)))));
  }
  const placed = sets.map((set) => ({ ...set, gangs: set.gangs.filter((gang) => !waits(gang)) }));
  const shown = placed.filter((set) => set.gangs.length > 0);
  parts.push(el("h2", {}, `Placed (${shown.reduce((sum, set) => sum + set.gangs.length, 0)})`));
  let room = ROWS_MAX;
  for (const set of shown) {
    const gangs = set.gangs.slice(0, room);
    room -= gangs.length;
    if (gangs.length > 0) parts.push(setSection(set, gangs, view));
  }
  const more = shown.reduce((sum, set) => sum + set.gangs.length, 0) - (ROWS_MAX - room);
  if (more > 0) parts.push(el("p", { class: "quiet" }, `and ${count(more, "more gang")}; search for one`));
  return parts;
}

function setSection(set, gangs, view) {
  return el(
    "section",
    { class: "set", "aria-label": `PodCliqueSet ${set.name}` },
    el("h3", {}, set.name, el("span", { class: "quiet" }, ` ${set.namespace}`)),
    el("ul", { class: "rows" }, ...gangs.map((gang) => el("li", {}, gangRow(gang, view)))),
  );
}

function limited(items, make) {
  const made = items.slice(0, ROWS_MAX).map(make);
  const more = items.length - ROWS_MAX;
  if (more > 0) made.push(el("li", { class: "quiet" }, `and ${more.toLocaleString("en")} more; search for one`));
  return made;
}

function swatch(gang, { palette }) {
  const { colour, pattern } = palette.of(gang);
  const mark = el("span", { class: `swatch ${pattern}`, "aria-hidden": "true" });
  mark.style.setProperty("--colour", colour);
  return mark;
}

function badge(gang) {
  const texts = {
    pending: gang.pending?.reason,
    degraded: `Degraded ${gang.placed}/${gang.pods}${gang.pending ? `, ${gang.pending.reason}` : ""}`,
  };
  return el("span", { class: `badge ${gang.state}` }, texts[gang.state] ?? STATES[gang.state]);
}

function gangRow(gang, view) {
  return el(
    "button",
    { class: "row", "data-gang": gang.name, onclick: () => view.select({ kind: "gang", key: keyOf(gang) }) },
    swatch(gang, view),
    el("span", { class: "grow" }, el("strong", {}, gang.name), el("span", { class: "quiet" }, where(gang))),
    el("span", { class: "number" }, `${gang.ready}/${gang.pods}`, el("span", { class: "quiet" }, "pods")),
    gang.state === "running" ? null : badge(gang),
  );
}

/** The broadest scope's place in a few words. */
function where(gang) {
  const places = gang.scopes.flatMap((scope) => (scope.kind === "gang" ? (scope.placement ?? []) : []));
  const one = places.filter((place) => place.domains.length === 1).pop() ?? places[places.length - 1];
  if (one === undefined) return gang.placed > 0 ? count(gang.placed, "pod") + " placed" : "";
  return `${one.level} ${names(one.domains)}`;
}

function pendingCard(gang, view) {
  const { pending } = gang;
  const since = gang.since ? ` for ${age(gang.since, view.now)}` : "";
  const near = pending?.nearest?.[0];
  return el(
    "button",
    { class: "card", "data-gang": gang.name, onclick: () => view.select({ kind: "gang", key: keyOf(gang) }) },
    el("span", { class: "line" }, el("strong", {}, gang.name), badge(gang)),
    el("span", { class: "reason" }, pending?.message ?? "Nobody has said why yet."),
    pending && pending.waiting !== "Wait" && el("span", {}, WAITING[pending.waiting] ?? ""),
    el("span", { class: "quiet" }, `Waits${since}${near ? `; nearest is ${near.domain}: ${near.free}` : ""}`),
  );
}

function results(view) {
  const { world, root, query, select } = view;
  const words = query.toLowerCase();
  const has = (...texts) => texts.some((text) => text.toLowerCase().includes(words));
  const gangs = [...world.gangs.values()].filter((gang) => has(gang.name, gang.set, gang.pending?.reason ?? ""));
  const domains = [...below(root)].filter((domain) => domain !== root && has(domain.name));
  const hosts = [...world.hosts.values()].filter((host) => has(host.name));
  const found = gangs.length + domains.length + hosts.length;
  if (found === 0)
    return [
      el("h2", {}, "Nothing is called so"),
      el("p", { class: "quiet" }, `No gang, domain or host contains “${query}”.`),
    ];
  const list = (title, items, make) =>
    items.length === 0
      ? []
      : [el("h2", {}, `${title} (${items.length})`), el("ul", { class: "rows" }, ...limited(items, make))];
  return [
    ...list("Gangs", gangs, (gang) => el("li", {}, gangRow(gang, view))),
    ...list("Domains", domains, (domain) => el("li", {}, domainRow(domain, view))),
    ...list("Hosts", hosts, (host) =>
      el("li", {}, el("button", { class: "row", onclick: () => select({ kind: "host", name: host.name }) }, host.name)),
    ),
  ];
}

function domainRow(domain, { select }) {
  return el(
    "button",
    { class: "row", onclick: () => select({ kind: "domain", path: domain.path }) },
    el("span", { class: "grow" }, `${domain.level} ${domain.name}`),
    meter(domain.used, domain.gpus),
    el("span", { class: "number" }, `${domain.used}/${domain.gpus}`),
  );
}

function meter(used, whole) {
  const bar = el("span", { class: "meter", "aria-hidden": "true" }, el("span"));
  bar.firstElementChild.style.width = whole === 0 ? "0" : `${(100 * used) / whole}%`;
  return bar;
}

function facts(entries) {
  const shown = entries.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el(
    "dl",
    { class: "facts" },
    ...shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

function command(text) {
  const button = el("button", { class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  });
  return el("div", { class: "command" }, el("code", { tabindex: "0" }, text), button);
}

function gangDetail(view) {
  const gang = view.world.gangOf(view.selection);
  if (gang === undefined) return [el("h2", {}, "Gone"), el("p", {}, "This gang does not exist any more.")];
  const title = el("h2", { class: "title" }, swatch(gang, view), el("span", { class: "grow" }, gang.name), badge(gang));
  const about = facts([
    ["PodCliqueSet", `${gang.namespace}/${gang.set}`],
    ["After", gang.base],
    ["Pods", `${gang.ready} of ${gang.pods} ready`],
    ["GPUs", String(gang.gpus)],
    ["Placed for", gang.since && !waits(gang) ? age(gang.since, view.now) : undefined],
    ["Score", gang.score === undefined ? undefined : gang.score.toFixed(2)],
    ["Topology", gang.topology],
  ]);
  const explain = command(`grove explain pg ${gang.name} -n ${gang.namespace}`);
  return [
    title,
    ...proof(gang, view),
    about,
    ...scopes(gang),
    ...pods(gang, view),
    el("h3", {}, "In a terminal"),
    explain,
  ];
}

/** Why it waits, how near it is, and what would help. */
function proof(gang, view) {
  const { pending } = gang;
  if (!waits(gang) || !pending) return [];
  const near = nearest(view.root, gang);
  const rows = (pending.nearest ?? []).map((one) => {
    const domain = near.find((known) => known.domain.name === one.domain)?.domain;
    const name = domain
      ? el("button", { class: "link", onclick: () => view.enter(domain.parent ?? domain) }, one.domain)
      : one.domain;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      el("td", {}, one.free),
      el("td", {}, one.missing),
      el("td", {}, (one.blockers ?? []).join(", ") || "nobody"),
    );
  });
  const heads = [pending.level ?? "domain", "Free", "Missing", "Held by"].map((text) =>
    el("th", { scope: "col" }, text),
  );
  const fixes = pending.wouldFitIf ?? [];
  return [
    el(
      "div",
      { class: "callout" },
      el("p", { class: "reason" }, el("strong", {}, `${pending.reason}: `), pending.message),
      el("p", {}, WAITING[pending.waiting] ?? ""),
    ),
    fixes.length > 0 && el("h3", {}, "It would run if"),
    fixes.length > 0 && el("ul", { class: "fixes" }, ...fixes.map((fix) => el("li", {}, fix))),
    rows.length > 0 && el("h3", {}, "Nearest, ringed on the map"),
    rows.length > 0 &&
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nearest domains" },
        el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)),
      ),
  ].filter(Boolean);
}

/** What each part of the gang asks for, and where it is: the gang, its groups with their cliques, the other cliques. */
function scopes(gang) {
  const [whole, ...parts] = gang.scopes;
  if (whole === undefined) return [];
  const groups = parts.filter((scope) => scope.kind === "group");
  const grouped = new Set(groups.flatMap((group) => group.cliques ?? []));
  const cliques = parts.filter((scope) => scope.kind === "clique");
  const within = (group) => cliques.filter((clique) => group.cliques?.includes(clique.name));
  return [
    el("h3", {}, "Scopes"),
    el(
      "ul",
      { class: "scopes" },
      scopeItem(whole, gang, 0),
      ...cliques.filter((clique) => !grouped.has(clique.name)).map((clique) => scopeItem(clique, gang, 1)),
      ...groups.flatMap((group) => [
        scopeItem(group, gang, 1),
        ...within(group).map((clique) => scopeItem(clique, gang, 2)),
      ]),
    ),
  ];
}

function scopeItem(scope, gang, depth) {
  const places = scope.placement ?? [];
  const place = places.find((one) => !isWider(one, scope)) ?? places[places.length - 1];
  const isPart = scope.name.startsWith(`${gang.name}-`);
  return el(
    "li",
    { class: `depth-${depth}` },
    el(
      "span",
      { class: "line" },
      el("strong", {}, isPart ? scope.name.slice(gang.name.length + 1) : scope.name),
      el("span", { class: "quiet" }, scope.kind),
      place && el("span", { class: "place" }, `${place.level} ${names(place.domains, 4)}`),
    ),
    el(
      "span",
      { class: "line" },
      scope.required && el("span", { class: "tag" }, `one ${scope.required}`),
      scope.preferred && el("span", { class: "tag soft" }, `prefers one ${scope.preferred}`),
      scope.minimum !== undefined && el("span", { class: "quiet" }, `at least ${count(scope.minimum, "pod")}`),
    ),
  );
}

/** Whether a place is told at another level than the one that the scope asks for. */
function isWider(place, scope) {
  return place.level !== (scope.required ?? scope.preferred);
}

function pods(gang, view) {
  const heading = el("h3", {}, "Pods");
  if (view.pods === null) return [heading, el("p", { class: "quiet" }, "Loading…")];
  if (view.pods === "lost")
    return [heading, el("p", { class: "quiet" }, "The server does not answer; they are listed when it does.")];
  if (view.pods.length === 0) return [heading, el("p", { class: "quiet" }, "None yet.")];
  const row = (pod) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, pod.name),
      el(
        "td",
        {},
        pod.host
          ? el("button", { class: "link", onclick: () => view.select({ kind: "host", name: pod.host }) }, pod.host)
          : "no host",
      ),
      el("td", {}, String(pod.gpus)),
      el("td", {}, STATES[pod.state]),
    );
  const heads = ["Pod", "Host", "GPUs", "State"].map((text) => el("th", { scope: "col" }, text));
  const more = view.pods.length - ROWS_MAX;
  return [
    heading,
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Pods of the gang" },
      el(
        "table",
        { class: "pods" },
        el("thead", {}, el("tr", {}, ...heads)),
        el("tbody", {}, ...view.pods.slice(0, ROWS_MAX).map(row)),
      ),
    ),
    more > 0 && el("p", { class: "quiet" }, `and ${more} more`),
  ].filter(Boolean);
}

function domainDetail(view) {
  const domain = at(view.root, view.selection.path);
  const gangs = [...domain.gangs.keys()].map((number) => view.world.gangs.get(number)).filter(Boolean);
  const others = domain.gangs.get(0) ?? 0;
  const isInside = domain.children.length > 0;
  return [
    el("h2", { class: "title" }, el("span", { class: "grow" }, `${domain.level} ${domain.name}`)),
    el("div", { class: "line" }, meter(domain.used, domain.gpus), el("span", {}, percent(domain.used, domain.gpus))),
    facts([
      ["GPUs", `${domain.used} of ${domain.gpus} in use`],
      ["Free hosts", `${domain.freeHosts} of ${domain.hostCount}`],
      ["In no gang", others > 0 ? count(others, "GPU") : undefined],
    ]),
    el("button", { class: "primary", onclick: () => view.enter(domain) }, "Show it alone"),
    el("h3", {}, `Gangs (${gangs.length})`),
    gangs.length === 0
      ? el("p", { class: "quiet" }, "None.")
      : el("ul", { class: "rows" }, ...limited(gangs, (gang) => el("li", {}, gangRow(gang, view)))),
    isInside && el("h3", {}, `Inside (${domain.children.length})`),
    isInside &&
      el("ul", { class: "rows" }, ...limited(domain.children, (child) => el("li", {}, domainRow(child, view)))),
  ].filter(Boolean);
}

function hostDetail(view) {
  const host = view.world.hosts.get(view.selection.name);
  if (host === undefined) return [el("h2", {}, "Gone"), el("p", {}, "This host does not exist any more.")];
  const home = homeOf(view.root, host.name);
  const gangs = [];
  for (let i = 0; i < host.cells.length; i += 2) gangs.push(view.world.gangs.get(host.cells[i]));
  const known = gangs.filter(Boolean);
  return [
    el("h2", { class: "title" }, el("span", { class: "grow" }, `host ${host.name}`)),
    facts([
      ["State", STATES[host.state]],
      ["GPUs", `${host.used} of ${host.gpus} in use`],
      ["In", home?.path.split("/").join(" › ")],
    ]),
    el("h3", {}, `Gangs (${known.length})`),
    known.length === 0
      ? el("p", { class: "quiet" }, "None.")
      : el("ul", { class: "rows" }, ...known.map((gang) => el("li", {}, gangRow(gang, view)))),
    home && el("ul", { class: "rows" }, el("li", {}, domainRow(home, view))),
  ].filter(Boolean);
}

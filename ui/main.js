// Puts the page together: what is known (world), what one looks at (state, kept in the address), and who draws it.

import { crumbs, legend, summary } from "./around.js";
import { Palette } from "./colour.js";
import { MapView } from "./map.js";
import { Outline } from "./outline.js";
import { panel } from "./panel.js";
import { follow } from "./stream.js";
import { age, count, el, names } from "./text.js";
import { World, at, homeOf, keyOf, nearest, waits } from "./world.js";

const world = new World();
const palette = new Palette();
/** What one looks at. A gang is selected by its name, as in the address. */
const state = {
  topology: "",
  colour: "gang",
  at: "",
  selection: null,
  query: "",
  wanted: "",
  pods: null,
  tab: "gangs",
};
/** What happened, the newest first. @type {{at: number, text: string}[]} */
const activity = [];
const ACTIVITY_MAX = 50;
let root = world.tree("");
let connection = { state: "connecting", at: Date.now() };

const get = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const actions = { select, enter, changed: () => draw() };
const map = new MapView(get("map"), actions);
const outline = new Outline(get("domains"), actions);

// ---- what one looks at, and the address ----

function readAddress() {
  const address = new URLSearchParams(location.search);
  state.topology = address.get("t") ?? "";
  state.colour = ["gang", "load", "free"].includes(address.get("c")) ? address.get("c") : "gang";
  state.at = address.get("at") ?? "";
  state.wanted = address.get("sel") ?? "";
  state.selection = null;
}

function writeAddress(isStep) {
  const address = new URLSearchParams();
  if (state.topology !== world.topologies[0]?.name) address.set("t", state.topology);
  if (state.colour !== "gang") address.set("c", state.colour);
  if (state.at !== "") address.set("at", state.at);
  const { selection } = state;
  if (selection) address.set("sel", `${selection.kind}:${selection.key ?? selection.path ?? selection.name}`);
  const text = address.toString();
  const target = text === "" ? location.pathname : `?${text}`;
  if (isStep) history.pushState(null, "", target);
  else history.replaceState(null, "", target);
}

/** The selection that an address names, once it is known what it means. */
function resolveWanted() {
  if (state.wanted === "") return;
  const [kind, rest] = [
    state.wanted.slice(0, state.wanted.indexOf(":")),
    state.wanted.slice(state.wanted.indexOf(":") + 1),
  ];
  state.wanted = "";
  if (kind === "gang") state.selection = { kind, key: rest };
  else if (kind === "domain") state.selection = { kind, path: rest };
  else if (kind === "host") state.selection = { kind, name: rest };
  loadPods();
}

function select(selection) {
  state.selection = selection;
  state.query = "";
  get("search").value = "";
  // The outline shows what is selected among its rows, but for gangs it has none.
  if (selection?.kind === "gang" || (selection !== null && state.tab === "activity")) state.tab = "gangs";
  bringIntoView(world.gangOf(selection));
  loadPods();
  writeAddress(true);
  draw();
}

/** A gang that is not in the part that is shown brings the whole map back. */
function bringIntoView(gang) {
  if (gang === undefined) return;
  const shown = at(root, state.at);
  const isNear = nearest(root, gang).some(({ domain }) => domain.path.startsWith(shown.path));
  if (!shown.gangs.has(gang.number) && !isNear) state.at = "";
}

function enter(domain) {
  // A rack is shown large enough where its block is shown; alone it is when one asks again.
  state.at = domain.path;
  writeAddress(true);
  draw();
  announce(domain.path === "" ? "The whole cluster is shown." : `${domain.level} ${domain.name} is shown.`);
}

async function loadPods() {
  state.pods = null;
  const { selection } = state;
  const gang = world.gangOf(selection);
  if (gang === undefined) return;
  const address = `./api/gangs/${encodeURIComponent(gang.namespace)}/${encodeURIComponent(gang.name)}/pods`;
  const pods = await fetch(address)
    .then((answer) => (answer.ok ? answer.json() : []))
    // A server that is gone is told of beside the lamp too; the list comes with the next map.
    .catch(() => "lost");
  if (state.selection !== selection || (pods === "lost" && state.pods !== null)) return;
  state.pods = pods;
  draw();
}

// ---- news ----

follow({
  map(whole) {
    if (!world.isLoaded) recall(whole.gangs);
    world.load(whole);
    useTopology(state.topology);
    resolveWanted();
    refreshPods();
    draw();
  },
  change(change) {
    const touched = world.apply(change);
    if (change.topologies) useTopology(state.topology);
    else if (!world.refresh(root, change)) root = world.tree(state.topology);
    for (const { before, after } of touched) tell(before, after);
    const selected = world.gangOf(state.selection);
    if (selected && touched.some(({ after }) => after === selected)) refreshPods();
    draw();
  },
  state(name) {
    connection = { state: name, at: Date.now() };
    showConnection();
  },
});

async function refreshPods() {
  const before = state.pods;
  const loading = loadPods();
  // What was shown stays until the new list is there.
  state.pods = before;
  await loading;
}

function tell(before, after) {
  const text = newsOf(before, after);
  if (text === undefined) return;
  activity.unshift({ at: Date.now(), text });
  activity.length = Math.min(activity.length, ACTIVITY_MAX);
  announce(text);
}

/** What became of the gangs before one looked, as far as they say when. */
function recall(gangs) {
  const told = gangs.map((gang) => ({ at: Date.parse(gang.since ?? ""), text: newsOf(undefined, gang) }));
  const dated = told.filter(({ at, text }) => text !== undefined && !Number.isNaN(at));
  dated.sort((a, b) => b.at - a.at);
  activity.push(...dated.slice(0, ACTIVITY_MAX - activity.length));
}

function newsOf(before, after) {
  if (after === undefined) return `${before.name} is gone.`;
  if (waits(after) && after.pending && before?.pending?.message !== after.pending.message) {
    return `${after.name} ${after.state === "degraded" ? "lost pods" : "waits"}: ${after.pending.message}.`;
  }
  if (after.state !== "running" || before?.state === "running") return undefined;
  const places = after.scopes.flatMap((scope) => (scope.kind === "gang" ? (scope.placement ?? []) : []));
  const place = places.filter((one) => one.domains.length === 1).pop();
  return `${after.name} runs${place ? ` in ${place.level} ${names(place.domains)}` : ""}.`;
}

let announcedAt = 0;
let announcement = 0;

/** One sentence in five seconds: more would only interrupt whoever listens. */
function announce(text) {
  clearTimeout(announcement);
  const wait = Math.max(0, announcedAt + 5000 - Date.now());
  announcement = setTimeout(() => {
    announcedAt = Date.now();
    get("announcer").textContent = text;
  }, wait);
}

// ---- drawing ----

let isDue = false;

/** Draws once a frame at most. */
function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    drawNow();
  });
}

function drawNow() {
  const shown = at(root, state.at);
  if (world.isLoaded) state.at = shown.path;
  const { selection } = state;
  const selectedGang = world.gangOf(selection);
  const near = nearest(root, selectedGang);
  map.show({
    world,
    palette,
    topology: state.topology,
    root: shown,
    colour: state.colour,
    gangs: selectedGang ? new Set([selectedGang.number]) : null,
    selected:
      selection?.kind === "domain"
        ? selection.path
        : selection?.kind === "host"
          ? (homeOf(root, selection.name)?.path ?? null)
          : null,
    nearest: new Set(near.map(({ domain }) => domain.path)),
  });
  get("crumbs").replaceChildren(...crumbs(shown, enter));
  get("summary").replaceChildren(...summary(root, world));
  get("legend").replaceChildren(...legend(state.colour, world, palette));
  drawPanel();
  get("map").setAttribute("aria-busy", String(!world.isLoaded));
  document.body.dataset.loaded = String(world.isLoaded);
}

function drawPanel() {
  for (const tab of ["gangs", "domains", "activity"]) {
    const isOn = state.tab === tab;
    get(`tab-${tab}`).setAttribute("aria-selected", String(isOn));
    get(`tab-${tab}`).tabIndex = isOn ? 0 : -1;
    get(tab).hidden = !isOn;
  }
  if (state.tab === "domains") {
    outline.show({ root, world, selection: state.selection });
    return;
  }
  if (state.tab === "activity") {
    const items = activity.map((one) =>
      el("li", {}, el("time", {}, new Date(one.at).toLocaleTimeString("en-GB")), el("span", {}, one.text)),
    );
    get("activity").replaceChildren(
      items.length === 0
        ? el("p", { class: "quiet" }, "Nothing has happened yet.")
        : el("ol", { class: "timeline" }, ...items),
    );
    return;
  }
  const place = get("gangs");
  const focused = place.contains(document.activeElement) ? labelOf(document.activeElement) : null;
  const { scrollTop } = place;
  place.replaceChildren(...panel({ ...state, world, root, palette, now: Date.now(), select, enter }));
  place.scrollTop = scrollTop;
  // The rows are new; whoever was on one stays on it.
  if (focused !== null)
    [...place.querySelectorAll("button")].find((one) => labelOf(one) === focused)?.focus({ preventScroll: true });
}

function labelOf(element) {
  return element.dataset?.gang ?? element.textContent;
}

/** Looks at the cluster by this topology, or by the first where there is none of that name. */
function useTopology(name) {
  const isKnown = world.topologies.some((topology) => topology.name === name);
  state.topology = isKnown ? name : (world.topologies[0]?.name ?? "");
  root = world.tree(state.topology);
  fillTopologies();
}

function fillTopologies() {
  const options = world.topologies.map((topology) => el("option", { value: topology.name }, topology.name));
  const select = /** @type {HTMLSelectElement} */ (get("topology"));
  select.replaceChildren(...(options.length > 0 ? options : [el("option", { value: "" }, "no topology")]));
  select.value = state.topology;
  const unlabelled = world.topologies.find((one) => one.name === state.topology)?.unlabelled.length ?? 0;
  const hint = get("hint");
  hint.hidden = world.topologies.length > 0 && unlabelled === 0;
  hint.textContent =
    world.topologies.length === 0
      ? "There is no topology: the hosts are shown as they come. “grove topology discover” proposes one."
      : `${count(unlabelled, "host")} lack a label of this topology; see “grove topology check”.`;
}

function showConnection() {
  const place = get("connection");
  place.dataset.state = connection.state;
  const texts = {
    live: "Live",
    lost: `Lost ${age(new Date(connection.at).toISOString(), Date.now())} ago, trying again`,
    connecting: "Connecting",
  };
  if (place.lastElementChild.textContent !== texts[connection.state]) {
    place.lastElementChild.textContent = texts[connection.state];
  }
}

// ---- controls ----

function setColour(colour) {
  state.colour = colour;
  for (const button of document.querySelectorAll("[data-colour]")) {
    button.setAttribute("aria-pressed", String(button.dataset.colour === colour));
  }
  writeAddress(false);
  draw();
}

function setTab(tab) {
  state.tab = tab;
  draw();
}

function nextPending() {
  const waiting = [...world.gangs.values()].filter(waits);
  if (waiting.length === 0) return;
  const index = waiting.indexOf(world.gangOf(state.selection));
  select({ kind: "gang", key: keyOf(waiting[(index + 1) % waiting.length]) });
}

const keys = {
  "/": () => get("search").focus(),
  p: nextPending,
  1: () => setColour("gang"),
  2: () => setColour("load"),
  3: () => setColour("free"),
  "?": () => /** @type {HTMLDialogElement} */ (get("help")).showModal(),
  Backspace: () => enter(at(root, state.at).parent ?? root),
  Escape: () => select(null),
};

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.ctrlKey || event.metaKey || event.altKey || get("help").open) return;
  if (isTyping && event.key !== "Escape") return;
  const act = keys[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
});

get("search").addEventListener("input", (event) => {
  state.query = event.target.value.trim();
  if (state.query !== "") state.tab = "gangs";
  draw();
});
get("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  get("gangs").querySelector("button")?.click();
});
get("topology").addEventListener("change", (event) => {
  useTopology(event.target.value);
  state.at = "";
  writeAddress(true);
  draw();
});
get("help-button").addEventListener("click", keys["?"]);
get("help-close").addEventListener("click", () => get("help").close());
for (const button of document.querySelectorAll("[data-colour]")) {
  button.addEventListener("click", () => setColour(button.dataset.colour));
}
const tabs = [...document.querySelectorAll("[role=tab]")];
for (const [index, tab] of tabs.entries()) {
  tab.addEventListener("click", () => setTab(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = tabs[(index + step + tabs.length) % tabs.length];
    setTab(next.id.slice(4));
    next.focus();
  });
}
addEventListener("popstate", () => {
  readAddress();
  useTopology(state.topology);
  resolveWanted();
  setColour(state.colour);
});
setInterval(() => {
  showConnection();
  // Ages grow without news.
  if (state.tab === "gangs" && !document.hidden && world.isLoaded) drawPanel();
}, 10000);

readAddress();
setColour(state.colour);

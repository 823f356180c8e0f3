// The map in words: a treegrid of domains and hosts, whose rows are made when they are opened. It is what a keyboard
// walks through and a screen reader reads; everything that a click on the map does, it does too.

import { count, el, names } from "./text.js";
import { at } from "./world.js";

/** Hosts of one domain that get a row; a rack that has more is rare, and its numbers are on its own row. */
const HOSTS_MAX = 64;

export class Outline {
  #open = new Set();
  #focused = "";
  #root = null;

  /**
   * @param {HTMLElement} place
   * @param {{select: (selection: any) => void, enter: (domain: any) => void}} on
   */
  constructor(place, on) {
    this.on = on;
    this.body = el("tbody");
    const head = ["Domain", "GPUs used", "Free hosts", "Gangs"].map((text) => el("th", { scope: "col" }, text));
    this.grid = el(
      "table",
      { role: "treegrid", "aria-label": "Domains and hosts", class: "outline" },
      el("thead", {}, el("tr", {}, ...head)),
      this.body,
    );
    this.grid.addEventListener("keydown", (event) => this.#key(event));
    place.append(this.grid);
  }

  /** Draws the rows that are open. */
  show({ root, world, selection }) {
    const isFirst = this.#root === null;
    this.#root = root;
    if (isFirst && root.hostCount <= 128) for (const child of root.children) this.#open.add(child.path);
    const hadFocus = this.body.contains(document.activeElement);
    const rows = [];
    for (const child of root.children) this.#rows(child, { world, selection }, rows);
    if (root.children.length === 0) this.#hostRows(root, { world, selection }, rows);
    this.body.replaceChildren(...rows);
    const keys = rows.map((row) => row.dataset.key);
    if (!keys.includes(this.#focused)) this.#focused = keys[0] ?? "";
    for (const row of rows) row.tabIndex = row.dataset.key === this.#focused ? 0 : -1;
    if (hadFocus) this.#row(this.#focused)?.focus();
  }

  #rows(domain, shown, rows) {
    const hasMore = domain.children.length + domain.hosts.length > 0;
    const isOpen = this.#open.has(domain.path);
    const gangs = [...domain.gangs.keys()].filter((number) => shown.world.gangs.has(number));
    rows.push(
      this.#make(domain.path, domain.depth, {
        name: domain.level ? `${domain.level} ${domain.name}` : domain.name,
        use: `${domain.used}/${domain.gpus}`,
        free: `${domain.freeHosts}/${domain.hostCount}`,
        gangs: String(gangs.length),
        expanded: hasMore ? isOpen : undefined,
        selected: shown.selection?.kind === "domain" && shown.selection.path === domain.path,
      }),
    );
    if (!isOpen) return;
    for (const child of domain.children) this.#rows(child, shown, rows);
    this.#hostRows(domain, shown, rows);
  }

  #hostRows(domain, { world, selection }, rows) {
    for (const host of domain.hosts.slice(0, HOSTS_MAX)) {
      const held = [];
      for (let i = 0; i < host.cells.length; i += 2) held.push(world.gangs.get(host.cells[i])?.name ?? "no gang");
      const state = { cordoned: " (cordoned)", notReady: " (not ready)" }[host.state] ?? "";
      rows.push(
        this.#make(`host ${host.name}`, domain.depth + 1, {
          name: `host ${host.name}${state}`,
          use: `${host.used}/${host.gpus}`,
          // A host is no domain of hosts: who is on it takes that place.
          free: undefined,
          gangs: held.length === 0 ? "none" : names(held, 2),
          expanded: undefined,
          selected: selection?.kind === "host" && selection.name === host.name,
        }),
      );
    }
    const more = domain.hosts.length - HOSTS_MAX;
    if (more > 0) rows.push(el("tr", {}, el("td", { colspan: "4" }, `and ${count(more, "more host")}`)));
  }

  #make(key, level, { name, use, free, gangs, expanded, selected }) {
    const twisty = el(
      "span",
      { class: "twisty", "aria-hidden": "true" },
      expanded === undefined ? "" : expanded ? "▾" : "▸",
    );
    const first = el("td", { role: "gridcell", class: "name" }, twisty, name);
    first.style.setProperty("--depth", String(level));
    const cells = [
      el("td", { role: "gridcell" }, use),
      free !== undefined && el("td", { role: "gridcell" }, free),
      el("td", { role: "gridcell", colspan: free === undefined ? "2" : null }, gangs),
    ];
    const row = el(
      "tr",
      {
        role: "row",
        "aria-level": level,
        "aria-expanded": expanded === undefined ? null : String(expanded),
        "aria-selected": String(selected),
        "data-key": key,
        tabindex: "-1",
        onclick: () => this.#choose(key),
      },
      first,
      ...cells,
    );
    twisty.addEventListener("click", (event) => {
      event.stopPropagation();
      this.#toggle(key, !this.#open.has(key));
    });
    return row;
  }

  #choose(key) {
    this.#focused = key;
    if (key.startsWith("host ")) this.on.select({ kind: "host", name: key.slice(5) });
    else this.on.select({ kind: "domain", path: key });
    this.#row(key)?.focus();
  }

  #toggle(key, isOpen) {
    if (isOpen) this.#open.add(key);
    else this.#open.delete(key);
    this.on.changed();
  }

  #row(key) {
    return [...this.body.rows].find((row) => row.dataset.key === key);
  }

  #key(event) {
    const row = event.target.closest("tr");
    if (!row?.dataset.key) return;
    const key = row.dataset.key;
    const rows = [...this.body.rows].filter((one) => one.dataset.key);
    const index = rows.indexOf(row);
    const isOpen = row.getAttribute("aria-expanded");
    const moves = {
      ArrowDown: () => this.#focus(rows[index + 1]),
      ArrowUp: () => this.#focus(rows[index - 1]),
      Home: () => this.#focus(rows[0]),
      End: () => this.#focus(rows[rows.length - 1]),
      ArrowRight: () => (isOpen === "false" ? this.#toggle(key, true) : this.#focus(rows[index + 1])),
      ArrowLeft: () => {
        if (isOpen === "true") return this.#toggle(key, false);
        const level = Number(row.getAttribute("aria-level"));
        const above = rows.slice(0, index).reverse();
        return this.#focus(above.find((one) => Number(one.getAttribute("aria-level")) < level));
      },
      " ": () => this.#choose(key),
      Enter: () => {
        this.#choose(key);
        if (!key.startsWith("host ")) this.on.enter(at(this.#root, key));
      },
    };
    const move = moves[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  }

  #focus(row) {
    if (row === undefined) return;
    this.#row(this.#focused)?.setAttribute("tabindex", "-1");
    this.#focused = row.dataset.key;
    row.tabIndex = 0;
    row.focus();
  }
}

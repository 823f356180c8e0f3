// What the page knows: the last whole map, every change since, and what follows from them. No DOM, no clock.

/**
 * @typedef {{name: string, gpus: number, state: string, cells: number[], used: number}} Host
 * @typedef {{
 *   name: string, level: string, path: string, depth: number, parent: Domain | null,
 *   children: Domain[], hosts: Host[], gpus: number, used: number, hostCount: number, freeHosts: number,
 *   gangs: Map<number, number>, homes: Map<string, Domain>,
 * }} Domain
 * @typedef {Record<string, any> & {number: number, namespace: string, name: string, set: string, state: string}} Gang
 */

/** What a gang is called everywhere: its number is of one server, and only cells name it so. */
export function keyOf(gang) {
  return `${gang.namespace}/${gang.name}`;
}

/** GPUs that somebody holds who is in no gang. */
export const NO_GANG = 0;

/** Made once: a comparison that makes its own takes a hundred times as long. */
const ORDER = new Intl.Collator("en", { numeric: true });

export class World {
  constructor() {
    this.isLoaded = false;
    /** @type {any[]} */
    this.topologies = [];
    /** @type {Map<string, Host>} */
    this.hosts = new Map();
    /** @type {Map<number, Gang>} */
    this.gangs = new Map();
  }

  /** Takes a whole map; what was known before is forgotten. */
  load(map) {
    this.isLoaded = true;
    this.topologies = map.topologies;
    this.hosts = new Map(map.hosts.map((host) => [host.name, withUse(host)]));
    this.gangs = new Map(map.gangs.map((gang) => [gang.number, gang]));
  }

  /** Takes a change; returns the gangs that it touched as they were and as they are. */
  apply(change) {
    if (change.topologies) this.topologies = change.topologies;
    for (const host of change.hosts ?? []) this.hosts.set(host.name, withUse(host));
    for (const name of change.hostsGone ?? []) this.hosts.delete(name);
    const touched = [];
    for (const gang of change.gangs ?? []) {
      touched.push({ before: this.gangs.get(gang.number), after: gang });
      this.gangs.set(gang.number, gang);
    }
    for (const number of change.gangsGone ?? []) {
      if (this.gangs.has(number)) touched.push({ before: this.gangs.get(number), after: undefined });
      this.gangs.delete(number);
    }
    return touched;
  }

  /** The gang that a selection is of. */
  gangOf(selection) {
    if (selection?.kind !== "gang") return undefined;
    for (const gang of this.gangs.values()) {
      if (keyOf(gang) === selection.key) return gang;
    }
    return undefined;
  }

  /** Gangs by PodCliqueSet; those that wait come first, then by name. */
  sets() {
    const sets = new Map();
    for (const gang of this.gangs.values()) {
      const key = `${gang.namespace}/${gang.set}`;
      if (!sets.has(key)) sets.set(key, { namespace: gang.namespace, name: gang.set, gangs: [] });
      sets.get(key).gangs.push(gang);
    }
    const byName = (a, b) => ORDER.compare(a.name, b.name);
    for (const set of sets.values()) set.gangs.sort(byName);
    return [...sets.values()].sort(byName);
  }

  /**
   * The tree of a topology with what is used in each domain. Hosts without all of its labels are in a domain of their
   * own at the end; without any topology all hosts are in one.
   */
  tree(name) {
    const topology = this.topologies.find((one) => one.name === name);
    const root = domain("", "cluster", null);
    if (topology) {
      for (const one of topology.domains) this.#grow(one, topology.levels, root);
      if (topology.unlabelled.length > 0) {
        const rest = domain("not labelled", "", root);
        rest.hosts = this.#hostsOf(topology.unlabelled);
        root.children.push(rest);
      }
    } else {
      root.hosts = [...this.hosts.values()];
    }
    sum(root);
    for (const domain of below(root)) for (const host of domain.hosts) root.homes.set(host.name, domain);
    return root;
  }

  /**
   * Brings a tree up to date with a change, in proportion to it. False if hosts came or went: then the tree must be
   * built anew.
   */
  refresh(root, change) {
    const hosts = change.hosts ?? [];
    if (change.topologies || (change.hostsGone ?? []).length > 0) return false;
    if (hosts.some((host) => !root.homes.has(host.name))) return false;
    for (const { name } of hosts) {
      const home = root.homes.get(name);
      const index = home.hosts.findIndex((host) => host.name === name);
      const [before, after] = [home.hosts[index], this.hosts.get(name)];
      home.hosts[index] = after;
      for (let domain = home; domain !== null; domain = domain.parent) {
        count(domain, before, -1);
        count(domain, after, 1);
      }
    }
    return true;
  }

  #grow(one, levels, parent) {
    const grown = domain(one.name, levels[parent.depth] ?? "", parent);
    parent.children.push(grown);
    for (const below of one.domains ?? []) this.#grow(below, levels, grown);
    grown.hosts = this.#hostsOf(one.hosts ?? []);
  }

  #hostsOf(hostNames) {
    return hostNames.map((host) => this.hosts.get(host)).filter((host) => host !== undefined);
  }
}

/** @returns {Domain} */
function domain(name, level, parent) {
  const path = parent === null || parent.path === "" ? name : `${parent.path}/${name}`;
  const depth = parent === null ? 0 : parent.depth + 1;
  const sums = { gpus: 0, used: 0, hostCount: 0, freeHosts: 0, gangs: new Map() };
  // The root knows where each host is.
  const homes = parent === null ? new Map() : parent.homes;
  return { name, level, path, depth, parent, children: [], hosts: [], homes, ...sums };
}

/** GPUs in use; pods can ask for more than a node has left to offer. */
function withUse(host) {
  let used = 0;
  for (let i = 1; i < host.cells.length; i += 2) used += host.cells[i];
  return { ...host, used: Math.min(used, host.gpus) };
}

/** Adds a host to the sums of a domain, or takes it away (`sign` is -1). */
function count(domain, host, sign) {
  domain.hostCount += sign;
  domain.gpus += sign * host.gpus;
  domain.used += sign * host.used;
  if (host.gpus > 0 && host.used === 0 && host.state === "ready") domain.freeHosts += sign;
  for (let i = 0; i < host.cells.length; i += 2) add(domain.gangs, host.cells[i], sign * host.cells[i + 1]);
}

function sum(domain) {
  for (const host of domain.hosts) count(domain, host, 1);
  for (const child of domain.children) {
    sum(child);
    domain.gpus += child.gpus;
    domain.used += child.used;
    domain.hostCount += child.hostCount;
    domain.freeHosts += child.freeHosts;
    for (const [gang, gpus] of child.gangs) add(domain.gangs, gang, gpus);
  }
}

function add(map, key, more) {
  const sum = (map.get(key) ?? 0) + more;
  if (sum === 0) map.delete(key);
  else map.set(key, sum);
}

/** The domain at a path, or the nearest one above it that exists. */
export function at(root, path) {
  let found = root;
  for (const part of path === "" ? [] : path.split("/")) {
    const next = found.children.find((child) => child.name === part);
    if (next === undefined) return found;
    found = next;
  }
  return found;
}

/** All domains below one, itself first, broadest first. */
export function* below(domain) {
  yield domain;
  for (const child of domain.children) yield* below(child);
}

/** Whether pods of a gang wait for a place: all that it needs, or those that it lost. */
export function waits(gang) {
  return gang.state === "pending" || gang.state === "degraded";
}

/** The domains that a pending gang nearly fits into, best first, each with what is said of it. */
export function nearest(root, gang) {
  const pending = gang?.pending;
  if (!pending?.nearest?.length) return [];
  const domains = [...below(root)];
  return pending.nearest.flatMap((near) => {
    const named = (one) => one.name === near.domain && (!pending.level || one.level === pending.level);
    const found = domains.find(named);
    return found ? [{ ...near, domain: found }] : [];
  });
}

/** The domain that holds a host. */
export function homeOf(root, hostName) {
  return root.homes.get(hostName);
}

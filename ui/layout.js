// Where everything goes: nested domains into nested rectangles. How much is shown of a domain follows from the pixels it
// gets: GPU cells, else one bar a host, else one tile. So a cluster of any size is drawn by one path.

/**
 * @typedef {{x: number, y: number, w: number, h: number}} Rect
 * @typedef {Rect & {
 *   domain: import("./world.js").Domain, detail: "frame" | "cells" | "rows" | "tile", label: number,
 *   rows: Rect | null, columns: number, rowHeight: number, cellWidth: number, hostLabel: number,
 * }} Box
 */

const TILE_MIN = 18;
const CELL_MIN = 5;
const ROW_MIN = 4;
const HOST_LABEL_HEIGHT_MIN = 13;

/**
 * All boxes of what is inside `root`, the outer ones before the inner ones.
 * @param {import("./world.js").Domain} root
 * @param {Rect} area
 * @returns {Box[]}
 */
export function layout(root, area) {
  const boxes = [];
  if (root.children.length > 0) grid(root.children, area, boxes);
  else if (root.hosts.length > 0) boxes.push(leaf(root, area, 0));
  return boxes;
}

function grid(domains, area, boxes) {
  const gap = area.w * area.h > 250000 ? 10 : area.w * area.h > 20000 ? 6 : 3;
  const { columns, rows } = best(domains, area, gap);
  const w = (area.w - gap * (columns - 1)) / columns;
  const h = (area.h - gap * (rows - 1)) / rows;
  domains.forEach((domain, index) => {
    const x = area.x + (index % columns) * (w + gap);
    const y = area.y + Math.floor(index / columns) * (h + gap);
    place(domain, { x, y, w, h }, boxes);
  });
}

/** The number of columns with which the domains come nearest to the shape that suits them, and few places stay empty. */
function best(domains, area, gap) {
  const wanted = Math.log(shape(domains[0]));
  let found = { columns: 1, rows: domains.length, cost: Infinity };
  for (let columns = 1; columns <= domains.length; columns += 1) {
    const rows = Math.ceil(domains.length / columns);
    const w = (area.w - gap * (columns - 1)) / columns;
    const h = (area.h - gap * (rows - 1)) / rows;
    if (w <= 0 || h <= 0) continue;
    const empty = (columns * rows - domains.length) / domains.length;
    const cost = Math.abs(Math.log(w / h) - wanted) + empty;
    if (cost < found.cost) found = { columns, rows, cost };
  }
  return found;
}

/** Width to height. */
function shape(domain) {
  if (domain.children.length > 0) return 1.5;
  return Math.min(3, Math.max(0.5, widest(domain) / (domain.hosts.length + 1.5)));
}

function widest(domain) {
  return Math.max(1, ...domain.hosts.map((host) => host.gpus));
}

function place(domain, rect, boxes) {
  const label = rect.h >= 56 && rect.w >= 44 ? 20 : rect.h >= 30 && rect.w >= 30 ? 12 : 0;
  if (domain.children.length === 0) {
    boxes.push(leaf(domain, rect, label));
    return;
  }
  const pad = rect.w > 220 ? 8 : rect.w > 60 ? 4 : 1;
  const inner = { x: rect.x + pad, y: rect.y + label + pad / 2, w: rect.w - 2 * pad, h: rect.h - label - 1.5 * pad };
  const room = Math.sqrt(Math.max(0, inner.w * inner.h) / domain.children.length);
  if (room < 8) {
    boxes.push({ ...bare(domain, rect), detail: "tile", label });
    return;
  }
  boxes.push({ ...bare(domain, rect), detail: "frame", label });
  grid(domain.children, inner, boxes);
}

function bare(domain, rect) {
  return { ...rect, domain, rows: null, columns: 0, rowHeight: 0, cellWidth: 0, hostLabel: 0 };
}

function leaf(domain, rect, label) {
  const box = bare(domain, rect);
  const pad = rect.w > 120 ? 6 : 3;
  const inner = { x: rect.x + pad, y: rect.y + label + 2, w: rect.w - 2 * pad, h: rect.h - label - pad - 2 };
  const count = Math.max(1, domain.hosts.length);
  if (Math.min(rect.w, rect.h) < TILE_MIN || inner.h <= 0) return { ...box, detail: "tile", label };
  // Hosts go one below the other, and side by side when that makes their cells larger.
  const gpus = widest(domain);
  let found = { columns: 1, size: 0 };
  for (let columns = 1; columns <= Math.min(count, 32); columns += 1) {
    const size = Math.min(inner.w / columns / gpus, inner.h / Math.ceil(count / columns));
    if (size > found.size * 1.15) found = { columns, size };
  }
  const { columns } = found;
  const lines = Math.ceil(count / columns);
  const rowHeight = Math.min(inner.h / lines, 40);
  const across = inner.w / columns;
  const hostLabel = rowHeight >= HOST_LABEL_HEIGHT_MIN && across >= 130 ? 26 : 0;
  const cellWidth = Math.min((across - hostLabel) / gpus, rowHeight * 2.2);
  const detail = cellWidth >= CELL_MIN && rowHeight >= CELL_MIN ? "cells" : rowHeight >= ROW_MIN ? "rows" : "tile";
  return { ...box, detail, label, rows: inner, columns, rowHeight, cellWidth, hostLabel };
}

/** The rectangle of a host in its box. */
export function rowOf(box, index) {
  const lines = Math.ceil(box.domain.hosts.length / box.columns);
  const across = box.rows.w / box.columns;
  return {
    x: box.rows.x + Math.floor(index / lines) * across,
    y: box.rows.y + (index % lines) * box.rowHeight,
    w: across,
    h: box.rowHeight,
  };
}

/** What is at a point: the innermost box, and the host and the GPU there if they are drawn. */
export function hit(boxes, x, y) {
  for (let index = boxes.length - 1; index >= 0; index -= 1) {
    const box = boxes[index];
    if (x < box.x || y < box.y || x >= box.x + box.w || y >= box.y + box.h) continue;
    if (box.rows === null || box.detail === "tile") return { box };
    const lines = Math.ceil(box.domain.hosts.length / box.columns);
    const column = Math.floor((x - box.rows.x) / (box.rows.w / box.columns));
    const line = Math.floor((y - box.rows.y) / box.rowHeight);
    if (line < 0 || line >= lines || column < 0 || column >= box.columns) return { box };
    const at = column * lines + line;
    const host = box.domain.hosts[at];
    if (host === undefined) return { box };
    const row = rowOf(box, at);
    const cell = Math.floor((x - row.x - box.hostLabel) / box.cellWidth);
    const isCell = box.detail === "cells" && cell >= 0 && cell < host.gpus;
    return { box, host, index: at, cell: isCell ? cell : undefined };
  }
  return undefined;
}

/** The gang that holds a GPU of a host: its number, 0 for somebody without a gang, undefined for nobody. */
export function holder(host, cell) {
  let end = 0;
  for (let i = 0; i < host.cells.length; i += 2) {
    end += host.cells[i + 1];
    if (cell < end) return host.cells[i];
  }
  return undefined;
}

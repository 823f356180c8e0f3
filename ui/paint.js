// The canvas: boxes in, pixels out. It remembers nothing but patterns, and decides nothing but how things look.

import { NO_GANG } from "./world.js";
import { free, load } from "./colour.js";
import { rowOf } from "./layout.js";

/**
 * @typedef {{
 *   boxes: import("./layout.js").Box[], world: import("./world.js").World, palette: import("./colour.js").Palette,
 *   colour: "gang" | "load" | "free", gangs: Set<number> | null, selected: string | null, nearest: Set<string>,
 *   theme: Record<string, string>,
 * }} Scene
 */

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const patterns = new Map();

/** @param {CanvasRenderingContext2D} context @param {Scene} scene */
export function paint(context, scene) {
  for (const box of scene.boxes) {
    panel(context, box, scene);
    if (box.detail === "tile") tile(context, box, scene);
    else if (box.detail !== "frame") hosts(context, box, scene);
    if (box.label > 0) label(context, box, scene);
  }
  // Rings last: nothing may cover what one is looking for.
  for (const box of scene.boxes) {
    if (scene.nearest.has(box.domain.path)) ring(context, box, scene.theme.warning, scene.theme.panel);
    if (scene.selected === box.domain.path) ring(context, box, scene.theme.accent, scene.theme.panel);
  }
}

function panel(context, box, { theme }) {
  context.fillStyle = box.detail === "frame" ? theme[box.domain.depth % 2 === 1 ? "frame" : "frame2"] : theme.panel;
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  const radius = box.w > 160 ? 8 : box.w > 40 ? 4 : 2;
  context.beginPath();
  context.roundRect(box.x + 0.5, box.y + 0.5, Math.max(0, box.w - 1), Math.max(0, box.h - 1), radius);
  context.fill();
  if (box.w > 10) context.stroke();
}

function label(context, box, { theme }) {
  const { domain } = box;
  const isSmall = box.label < 20;
  const size = isSmall ? 9 : 12;
  const inset = isSmall ? 4 : 8;
  const middle = box.y + box.label / 2 + (isSmall ? 2 : 3);
  context.textBaseline = "middle";
  context.font = `${isSmall ? 500 : 600} ${size}px ${FONT}`;
  const use = `${domain.used}/${domain.gpus}`;
  const room = box.w - 2 * inset;
  const useWidth = context.measureText(use).width;
  let name = domain.name;
  const whole = `${domain.level} ${domain.name}`;
  if (domain.level && context.measureText(whole).width + useWidth + 14 < room) name = whole;
  const isUseShown = context.measureText(name).width + useWidth + 8 < room;
  context.textAlign = "left";
  context.fillStyle = theme.text;
  context.fillText(fitted(context, name, isUseShown ? room - useWidth - 6 : room), box.x + inset, middle);
  if (!isUseShown) return;
  context.font = `400 ${size}px ${FONT}`;
  context.textAlign = "right";
  context.fillStyle = theme.muted;
  context.fillText(use, box.x + box.w - inset, middle);
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let cut = text;
  while (cut.length > 1 && context.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return cut.length > 1 ? `${cut}…` : "";
}

/** What a gang's GPUs are filled with. */
function fillOf(context, number, { world, palette, gangs, theme }) {
  if (gangs !== null && !gangs.has(number)) return theme.dimmed;
  const gang = world.gangs.get(number);
  if (number === NO_GANG || gang === undefined) return theme.other;
  const { colour, pattern } = palette.of(gang);
  return pattern === "plain" ? colour : patterned(context, colour, pattern);
}

function patterned(context, colour, pattern) {
  const key = `${colour} ${pattern}`;
  if (!patterns.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = 6;
    tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 6, 6);
    pen.fillStyle = "rgba(255, 255, 255, 0.75)";
    pen.strokeStyle = "rgba(255, 255, 255, 0.75)";
    if (pattern === "dot") pen.fillRect(2, 2, 2, 2);
    else {
      pen.lineWidth = 1.5;
      pen.beginPath();
      for (const start of [-6, 0, 6]) {
        pen.moveTo(start, 6);
        pen.lineTo(start + 6, 0);
      }
      pen.stroke();
    }
    patterns.set(key, context.createPattern(tile, "repeat"));
  }
  return patterns.get(key);
}

/** A domain that is too small for its hosts: filled from below as far as it is used. */
function tile(context, box, scene) {
  const { domain } = box;
  const top = box.y + (box.label > 0 ? box.label + 2 : 1);
  const area = { x: box.x + 1, y: top, w: box.w - 2, h: box.y + box.h - 1 - top };
  if (area.w <= 0 || area.h <= 0) return;
  if (scene.colour === "load" || scene.colour === "free") {
    const isLoad = scene.colour === "load";
    const fill = isLoad ? load(domain.used, domain.gpus) : free(domain.freeHosts, domain.hostCount);
    context.fillStyle = fill ?? scene.theme.free;
    context.fillRect(area.x, area.y, area.w, area.h);
    return;
  }
  if (domain.gpus === 0) return;
  let bottom = area.y + area.h;
  for (const [gang, gpus] of [...domain.gangs].sort(([a], [b]) => a - b)) {
    const height = (area.h * gpus) / domain.gpus;
    context.fillStyle = fillOf(context, gang, scene);
    context.fillRect(area.x, bottom - height, area.w, height);
    bottom -= height;
  }
}

function hosts(context, box, scene) {
  const { domain } = box;
  const isCells = box.detail === "cells";
  const gapX = box.cellWidth >= 9 ? 2 : 1;
  const gapY = box.rowHeight >= 12 ? 3 : box.rowHeight >= 6 ? 1 : 0.5;
  domain.hosts.forEach((host, index) => {
    const row = rowOf(box, index);
    if (box.hostLabel > 0) hostLabel(context, box, row, host, scene);
    const line = { x: row.x + box.hostLabel, y: row.y, w: box.cellWidth * host.gpus, h: row.h - gapY };
    if (host.gpus === 0) {
      context.strokeStyle = scene.theme.line;
      context.strokeRect(line.x + 0.5, line.y + 0.5, Math.max(2, row.w - box.hostLabel - 4), Math.max(1, line.h - 1));
      return;
    }
    const radius = isCells && line.h >= 9 && box.cellWidth >= 9 ? 2.5 : 0;
    const pen = { cell: box.cellWidth, gap: isCells ? gapX : 0, radius };
    if (scene.colour !== "gang") {
      const isLoad = scene.colour === "load";
      const share = isLoad ? load(host.used, host.gpus) : free(domain.freeHosts, domain.hostCount);
      const fill = share ?? scene.theme.free;
      run(context, line, [0, isLoad ? host.gpus : host.used], isLoad ? fill : scene.theme.dimmed, pen);
      if (!isLoad) run(context, line, [host.used, host.gpus], fill, pen);
    } else {
      let from = 0;
      for (let i = 0; i < host.cells.length; i += 2) {
        const to = Math.min(host.gpus, from + host.cells[i + 1]);
        run(context, line, [from, to], fillOf(context, host.cells[i], scene), pen);
        from = to;
      }
      run(context, line, [from, host.gpus], scene.theme.free, pen);
    }
    if (host.state !== "ready") mark(context, line, host.state, scene.theme);
  });
}

function run(context, line, [from, to], fill, pen) {
  if (to <= from) return;
  context.fillStyle = fill;
  if (pen.gap === 0) {
    context.fillRect(line.x + from * pen.cell, line.y, (to - from) * pen.cell, line.h);
    return;
  }
  if (pen.radius === 0) {
    for (let cell = from; cell < to; cell += 1) {
      context.fillRect(line.x + cell * pen.cell, line.y, pen.cell - pen.gap, line.h);
    }
    return;
  }
  context.beginPath();
  for (let cell = from; cell < to; cell += 1) {
    context.roundRect(line.x + cell * pen.cell, line.y, pen.cell - pen.gap, line.h, pen.radius);
  }
  context.fill();
}

/** A host in a rack that begins with the rack's name is told by the rest of its own. */
function hostLabel(context, box, row, host, { theme }) {
  const { name } = host;
  const isShort = name.startsWith(box.domain.name) && name.length > box.domain.name.length;
  const text = isShort ? name.slice(box.domain.name.length).replace(/^[-.]/, "") : name;
  context.font = `400 10px ${FONT}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = theme.muted;
  context.fillText(fitted(context, text, box.hostLabel - 4), row.x + 1, row.y + row.h / 2 - 1);
}

/** States are told by shape: hatched is cordoned, crossed is not ready. */
function mark(context, line, state, theme) {
  context.save();
  context.beginPath();
  context.rect(line.x, line.y, line.w, line.h);
  context.clip();
  context.beginPath();
  if (state === "cordoned") {
    for (let x = line.x - line.h; x < line.x + line.w; x += 8) {
      context.moveTo(x, line.y + line.h);
      context.lineTo(x + line.h, line.y);
    }
  } else {
    context.moveTo(line.x, line.y);
    context.lineTo(line.x + line.w, line.y + line.h);
    context.moveTo(line.x, line.y + line.h);
    context.lineTo(line.x + line.w, line.y);
  }
  // Two tones, so that it is seen on any colour.
  for (const [width, tone] of [
    [3.5, theme.panel],
    [1.5, theme.text],
  ]) {
    context.lineWidth = width;
    context.strokeStyle = tone;
    context.stroke();
  }
  context.restore();
}

/** Two tones, so that it is seen on any ground. */
export function ring(context, box, colour, ground) {
  const radius = box.w > 160 ? 9 : box.w > 40 ? 5 : 2;
  for (const [inset, width, tone] of [
    [-1, 5, ground],
    [-1, 3, colour],
  ]) {
    context.strokeStyle = tone;
    context.lineWidth = width;
    context.beginPath();
    context.roundRect(box.x + inset, box.y + inset, box.w - 2 * inset, box.h - 2 * inset, radius);
    context.stroke();
  }
}

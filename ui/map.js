// The map as one sees and touches it: two canvases (what there is; what the pointer is on), and a tooltip. For those who
// do not see it, the outline (outline.js) says the same.

import { el } from "./text.js";
import { NO_GANG, keyOf } from "./world.js";
import { hit, holder, layout, rowOf } from "./layout.js";
import { paint, ring } from "./paint.js";

const THEME = ["panel", "frame", "frame2", "line", "text", "muted", "free", "dimmed", "other", "accent", "warning"];

export class MapView {
  /** @type {import("./layout.js").Box[]} */
  boxes = [];
  #scene = null;
  #isDue = false;
  #size = { w: 0, h: 0 };
  #shown = "";

  /**
   * @param {HTMLElement} place
   * @param {{select: (selection: any) => void, enter: (domain: any) => void}} on
   */
  constructor(place, on) {
    this.place = place;
    this.on = on;
    this.canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": "true" }));
    this.overlay = /** @type {HTMLCanvasElement} */ (el("canvas", { "aria-hidden": "true", class: "overlay" }));
    this.tooltip = el("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
    place.append(this.canvas, this.overlay, this.tooltip);
    new ResizeObserver(() => this.#resize()).observe(place);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", () => this.show(this.#scene));
    this.overlay.addEventListener("pointermove", (event) => this.#hover(event));
    this.overlay.addEventListener("pointerleave", () => this.#leave());
    this.overlay.addEventListener("click", (event) => this.#click(event));
    this.overlay.addEventListener("dblclick", (event) => this.#enter(event));
  }

  /** Draws a scene at the next frame; several in one frame are drawn once. */
  show(scene) {
    this.#scene = scene;
    if (scene === null || this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#draw();
    });
  }

  #resize() {
    const { clientWidth: w, clientHeight: h } = this.place;
    this.#size = { w, h };
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(w * devicePixelRatio);
      canvas.height = Math.round(h * devicePixelRatio);
    }
    // At once: a canvas that got another size is empty, and would flicker until the next frame.
    if (this.#scene !== null) this.#draw();
  }

  #draw() {
    const { w, h } = this.#size;
    if (w < 20 || h < 20) return;
    const begun = performance.now();
    const style = getComputedStyle(document.documentElement);
    const theme = Object.fromEntries(THEME.map((name) => [name, style.getPropertyValue(`--map-${name}`).trim()]));
    this.boxes = layout(this.#scene.root, { x: 4, y: 4, w: w - 8, h: h - 8 });
    // What the pointer was on may be elsewhere now.
    const shown = `${this.#scene.topology}/${this.#scene.root.path}`;
    if (this.#shown !== shown) this.#leave();
    this.#shown = shown;
    const context = pen(this.canvas);
    paint(context, { ...this.#scene, boxes: this.boxes, theme });
    this.theme = theme;
    // For whoever measures: how long the last picture took, what is on it, and what is ringed as nearest.
    this.place.dataset.frameMs = (performance.now() - begun).toFixed(1);
    this.place.dataset.boxes = String(this.boxes.length);
    const ringed = this.boxes.filter((box) => this.#scene.nearest.has(box.domain.path));
    this.place.dataset.ringed = ringed.map((box) => box.domain.path).join(" ");
  }

  #at(event) {
    return hit(this.boxes, event.offsetX, event.offsetY);
  }

  #hover(event) {
    const found = this.#at(event);
    const context = pen(this.overlay);
    if (found === undefined) {
      this.#leave();
      return;
    }
    const row = found.host ? rowOf(found.box, found.index) : found.box;
    ring(context, found.host ? { ...row, h: row.h - 2 } : row, this.theme.accent, this.theme.panel);
    this.overlay.classList.add("over");
    this.tooltip.replaceChildren(...this.#describe(found));
    this.tooltip.hidden = false;
    const x = Math.min(event.offsetX + 14, this.#size.w - this.tooltip.offsetWidth - 8);
    const isLow = event.offsetY > this.#size.h - this.tooltip.offsetHeight - 24;
    const y = isLow ? event.offsetY - this.tooltip.offsetHeight - 10 : event.offsetY + 16;
    this.tooltip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
  }

  #describe({ box, host, cell }) {
    const { world } = this.#scene;
    if (host === undefined) {
      const { domain } = box;
      const title = domain.level ? `${domain.level} ${domain.name}` : domain.name || "cluster";
      return [
        el("strong", {}, title),
        el(
          "span",
          {},
          `${domain.used} of ${domain.gpus} GPUs in use, ${domain.freeHosts} of ${domain.hostCount} hosts free`,
        ),
      ];
    }
    const held = cell === undefined ? undefined : holder(host, cell);
    const gang = held === undefined ? undefined : world.gangs.get(held);
    const whose = gang ? `gang ${gang.name}` : held === NO_GANG ? "in use, by no gang" : "free";
    const state = { cordoned: ", cordoned", notReady: ", not ready" }[host.state] ?? "";
    const use = `${host.used} of ${host.gpus} GPUs in use${state}`;
    return [
      el("strong", {}, `host ${host.name}`),
      cell === undefined ? "" : el("span", {}, whose),
      el("span", {}, use),
    ];
  }

  #leave() {
    pen(this.overlay);
    this.overlay.classList.remove("over");
    this.tooltip.hidden = true;
  }

  #click(event) {
    const found = this.#at(event);
    if (found === undefined) {
      this.on.select(null);
      return;
    }
    const held = found.cell === undefined ? undefined : holder(found.host, found.cell);
    const gang = this.#scene.world.gangs.get(held);
    if (gang) this.on.select({ kind: "gang", key: keyOf(gang) });
    else if (found.host) this.on.select({ kind: "host", name: found.host.name });
    else this.on.select({ kind: "domain", path: found.box.domain.path });
  }

  #enter(event) {
    const found = this.#at(event);
    if (found) this.on.enter(found.box.domain);
  }
}

/** A cleared canvas that is drawn on in CSS pixels. */
function pen(canvas) {
  const context = canvas.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  return context;
}

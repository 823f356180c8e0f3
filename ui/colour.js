// Which colour means what. A PodCliqueSet has a hue (seven that stay apart for people who do not see all colours) and,
// when there are more sets than hues, a pattern; its gangs are shades of the hue.

import { keyOf } from "./world.js";

const HUES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#b8a800"];
const PATTERNS = ["plain", "stripe", "dot"];
/** How far a gang's shade is from its set's: the first gang has the hue itself. */
const SHADES = [0, 0.32, -0.24, 0.5, -0.4];

/** From little to much, each step as large as the next, also without colours (cividis); much stands out on light. */
const LOAD = ["#fee838", "#dec958", "#bcae6c", "#9b9476", "#7d7c78", "#61656f", "#434e6c", "#1a386f", "#00224e"];
const FREE = ["#cfe0f3", "#a9c8ea", "#7eaddd", "#4f8fcd", "#2673b6", "#0f5a9c"];

const dark = matchMedia("(prefers-color-scheme: dark)");

/** On a dark ground the ramps run the other way: what is much is what shines. */
export function isDark() {
  return dark.matches;
}

/**
 * Colours of gangs, by name: a server that starts again gives other numbers. What was given once is kept, so nothing
 * changes its colour while one looks.
 */
export class Palette {
  #sets = new Map();
  #gangs = new Map();

  /** @returns {{colour: string, pattern: string}} */
  of(gang) {
    const key = `${gang.namespace}/${gang.set}`;
    if (!this.#sets.has(key)) this.#sets.set(key, { index: this.#sets.size, gangs: 0 });
    const set = this.#sets.get(key);
    const name = keyOf(gang);
    if (!this.#gangs.has(name)) {
      const shade = SHADES[set.gangs % SHADES.length];
      set.gangs += 1;
      const colour = mix(HUES[set.index % HUES.length], shade);
      const pattern = PATTERNS[Math.floor(set.index / HUES.length) % PATTERNS.length];
      this.#gangs.set(name, { colour, pattern });
    }
    return this.#gangs.get(name);
  }
}

/** A colour with white (above 0) or black (below 0) in it. */
function mix(colour, amount) {
  const target = amount > 0 ? 255 : 0;
  const part = (from) => {
    const value = parseInt(colour.slice(from, from + 2), 16);
    return Math.round(value + (target - value) * Math.abs(amount))
      .toString(16)
      .padStart(2, "0");
  };
  return `#${part(1)}${part(3)}${part(5)}`;
}

/** How much of what there is is used; what is idle has no colour of its own. */
export function load(used, gpus) {
  return used === 0 ? null : step(LOAD, used / gpus);
}

/** How much of a domain's hosts are wholly free: what a gang can use. */
export function free(freeHosts, hosts) {
  return hosts === 0 ? null : step(FREE, freeHosts / hosts);
}

function step(ramp, share) {
  const at = Math.min(ramp.length - 1, Math.max(0, Math.round(share * (ramp.length - 1))));
  return ramp[isDark() ? ramp.length - 1 - at : at];
}

export const RAMPS = { load: LOAD, free: FREE };

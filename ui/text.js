// Words and elements: what every other module needs to put something on the page. Text always goes in as text, never as
// markup, so nothing that a cluster says can become code.

/**
 * An element with attributes, listeners (`onclick`) and children; nothing for children that are null or false.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string | null | false | undefined)} children
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child || child === ""));
  return element;
}

/** "1 pod", "7 pods", "1,234 pods". */
export function count(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

export function percent(part, whole) {
  return whole === 0 ? "0 %" : `${Math.round((100 * part) / whole)} %`;
}

/** How long ago a moment was: "12 s", "4 min", "3 h", "2 d". */
export function age(since, now) {
  const seconds = Math.max(0, Math.round((now - Date.parse(since)) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Names as a list that does not grow without end: "a, b and 7 more". */
export function names(list, most = 3) {
  if (list.length <= most) return list.join(", ");
  return `${list.slice(0, most).join(", ")} and ${list.length - most} more`;
}

export const WAITING = {
  Wait: "It is placed as soon as it fits.",
  Act: "Waiting will not help: somebody has to do something.",
  Never: "Waiting will not help: this cluster cannot hold it.",
};

export const STATES = {
  forming: "Forming",
  pending: "Pending",
  degraded: "Degraded",
  starting: "Starting",
  running: "Running",
  gated: "Gated",
  waiting: "Waiting",
  ready: "Ready",
  ending: "Ending",
  ended: "Ended",
  cordoned: "Cordoned",
  notReady: "Not ready",
};

// The news: one stream of server-sent events, closed while nobody looks, opened again when it breaks.

/**
 * @param {{map: (map: any) => void, change: (change: any) => void, state: (state: "live" | "lost") => void}} on
 */
export function follow(on) {
  /** @type {EventSource | null} */
  let source = null;
  let nextTry = 0;

  function open() {
    close();
    const own = new EventSource("./api/events");
    source = own;
    own.addEventListener("map", (event) => {
      on.state("live");
      on.map(JSON.parse(event.data));
    });
    own.addEventListener("change", (event) => on.change(JSON.parse(event.data)));
    own.addEventListener("error", () => {
      on.state("lost");
      // A browser gives up on some errors; then the next try is ours. One stream is enough: whoever opens one first ends
      // the waiting.
      if (own === source && own.readyState === EventSource.CLOSED) nextTry = setTimeout(open, 3000);
    });
  }

  function close() {
    clearTimeout(nextTry);
    source?.close();
    source = null;
  }

  // A browser has few connections to one host: a tab that nobody sees does not hold one.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (source === null) open();
  });
  open();
}

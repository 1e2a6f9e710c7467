// Refreshes the page in place, and shows how long ago each time was. The page works without it.
"use strict";
(() => {
  const PENDING_SECONDS = 1;

  const ago = (seconds) => {
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
    }
    return `${Math.max(0, Math.floor(seconds))} s`;
  };

  const showAges = () => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
      if (Number.isFinite(seconds)) time.title = seconds < 0 ? `in ${ago(-seconds)}` : `${ago(seconds)} ago`;
    }
  };

  const main = () => document.getElementById("content");
  const seconds = () =>
    document.querySelector(".pending") ? PENDING_SECONDS : Math.max(Number(main().dataset.refreshSeconds) || 30, 5);

  // A reader is not disturbed: a focused field, an open detail or a selection put a refresh off.
  const isInUse = () =>
    main().contains(document.activeElement) && document.activeElement !== main() ||
    document.querySelector("details[open]") !== null || !document.getSelection().isCollapsed;

  const warn = (text) => {
    let line = document.querySelector(".unreachable");
    if (!line) {
      line = document.createElement("p");
      line.className = "stale unreachable";
      line.setAttribute("role", "status");
      main().querySelector(".freshness").append(line);
    }
    line.textContent = text;
  };

  const refresh = async () => {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("content");
      if (fresh && !isInUse()) {
        main().replaceChildren(...fresh.childNodes);
        showAges();
      }
    } catch (error) {
      warn(`The console does not answer (${error.message}): this page is not refreshed.`);
    }
  };

  const next = () => setTimeout(async () => {
    if (!document.hidden && !isInUse()) await refresh();
    next();
  }, seconds() * 1000);

  showAges();
  next();
})();

// Live figures: every two seconds the page is fetched again, and the parts marked data-live are replaced.
"use strict";

const PERIOD_MS = 2000;

async function refresh() {
  if (document.hidden || !document.querySelector("[data-live]")) return;
  const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const found = fresh.querySelector(`[data-live="${part.dataset.live}"]`);
    if (found && !part.contains(document.activeElement)) part.replaceWith(document.importNode(found, true));
  }
}

async function forever() {
  try {
    await refresh();
  } catch {
    // The broker is away: the next round asks again.
  }
  setTimeout(forever, PERIOD_MS);
}

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.ask;
  if (question && !confirm(question)) event.preventDefault();
});
if (!new URLSearchParams(location.search).has("peek")) setTimeout(forever, PERIOD_MS);

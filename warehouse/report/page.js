"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const choice = (key) => document.querySelector(`[data-choose="${key}"]`)?.value ?? "";
  const shown = (box) => !box.closest("details:not([open])");
  const pause = () => new Promise((resolve) => setTimeout(resolve));

  function draw(box) {
    const key = box.dataset.chart;
    const name = choice(key);
    return charts.draw(box, name, data.charts[key][name], data.rows, data.config);
  }

  // Tables and charts that can be seen, one after the other, so that the page stays usable.
  async function drawAll() {
    for (const place of document.querySelectorAll("[data-table]")) {
      if (!shown(place)) continue;
      tables.draw(place, data.tables[place.dataset.table]);
      await pause();
    }
    for (const box of document.querySelectorAll("[data-chart]")) {
      if (!shown(box)) continue;
      await draw(box);
      await pause();
    }
    document.documentElement.dataset.drawn = "yes";
  }

  document.addEventListener("toggle", drawAll, true);
  document.addEventListener("change", (event) => {
    const key = event.target.dataset.choose;
    if (key) draw(document.querySelector(`[data-chart="${key}"]`));
  });
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 200);
  });
  // Opens what an address names, and what it is folded in.
  function visit() {
    const named = document.getElementById(location.hash.slice(1));
    const folded = named?.firstElementChild;
    if (folded?.tagName === "DETAILS") folded.open = true;
    for (let part = named; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (named) named.scrollIntoView();
    jobs.open(location.hash, data);
  }

  window.addEventListener("hashchange", visit);
  // After the first paint.
  requestAnimationFrame(() => setTimeout(() => drawAll().then(visit)));
})();

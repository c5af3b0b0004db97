"use strict";
// Charts, drawn as wide as there is room, each when it is first seen.
const charts = (() => {
  // Panels side by side as many as fit, each as wide as there is room for it.
  function fitted(spec, room) {
    const panels = spec.concat || spec.vconcat || (spec.spec ? [spec.spec] : [spec]);
    const most = spec.vconcat ? 1 : spec.columns || 1;
    const { margin = 72, least = 270 } = spec.usermeta || {};
    const across = Math.max(1, Math.min(most, Math.floor(room / least)));
    if (spec.columns) spec.columns = across;
    const gap = typeof spec.spacing === "number" && across > 1 ? spec.spacing : 12;
    const width = Math.max(100, Math.floor((room - gap * (across - 1)) / across) - margin);
    const resize = (part) => {
      if ("width" in part) part.width = width;
      (part.layer || []).forEach(resize);
    };
    panels.forEach(resize);
    return spec;
  }

  // Legends in fewer columns where there is no room: else the panels would shrink to their width.
  const WIDE = 900;
  function narrowed(part, room) {
    if (part === null || typeof part !== "object") return part;
    if (part.legend && part.legend.columns && room < WIDE) {
      const columns = Math.max(1, Math.floor((part.legend.columns * room) / WIDE));
      part.legend.columns = columns;
    }
    Object.values(part).forEach((one) => narrowed(one, room));
    return part;
  }

  // Draws unless the same was drawn at this width, or the box is hidden.
  async function draw(box, name, spec, rows, config) {
    const room = box.clientWidth;
    if (room === 0 || box.dataset.drawn === `${name} ${room}`) return;
    box.dataset.drawn = `${name} ${room}`;
    try {
      const datasets = Object.fromEntries(spec.datasets.map((key) => [key, rows[key]]));
      const fit = (part) => narrowed(structuredClone(part), room);
      const whole = { ...fitted(fit(spec), room), datasets };
      await vegaEmbed(box, whole, { renderer: "svg", actions: false, config: fit(config) });
    } catch (error) {
      box.textContent = "This chart cannot be drawn: " + error.message;
      console.error(error);
    }
  }

  return { draw };
})();

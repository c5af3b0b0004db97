"use strict";
// Tables that sort, filter and search, each drawn when it is first seen.
const tables = (() => {
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

  // A number as people read it: three digits, or whole from 1,000 on.
  function number(value) {
    if (Number.isInteger(value) || Math.abs(value) >= 1000) return whole.format(value);
    return String(Number(value.toPrecision(3)));
  }

  function shown(value) {
    if (value === null) return "–";
    if (Array.isArray(value)) return value.filter((part) => part !== null).map(number).join(" ± ");
    return typeof value === "number" ? number(value) : value;
  }

  function element(name, attributes, ...content) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...content);
    return made;
  }

  const AT_ONCE = 50;
  const letters = new Intl.Collator("en", { numeric: true });
  const key = (value) => (Array.isArray(value) ? value[0] : value);

  // Numbers by size, text by its letters and numbers; what is missing comes last.
  function compare(one, other, down) {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "number" ? a - b : letters.compare(a, b);
    return down ? -order : order;
  }

  function line(row, table) {
    const cells = row.map((value, column) => {
      if (column === 0 && table.sections) {
        const link = element("a", { href: `#job-${table.sections}-${value}` }, String(value));
        return element("th", { scope: "row", class: "number" }, link);
      }
      return element("td", typeof key(value) === "number" ? { class: "number" } : {}, shown(value));
    });
    return element("tr", {}, ...cells);
  }

  function fill(place, table) {
    const rows = table.rows.map((row) => ({ row, text: row.join(" ").toLowerCase() }));
    const status = element("p", { class: "note", role: "status" });
    const body = element("tbody", {});
    const chosen = new Map();
    let words = [];
    let kept = [];

    // The next rows of a long table: laying out all of them at once would be slow.
    function more() {
      const from = body.rows.length;
      body.append(...kept.slice(from, from + AT_ONCE).map(({ row }) => line(row, table)));
    }

    function show() {
      kept = rows.filter(
        ({ row, text }) =>
          words.every((word) => text.includes(word)) &&
          [...chosen].every(([column, value]) => value === "" || shown(row[column]) === value),
      );
      body.replaceChildren();
      more();
      drawn.setAttribute("aria-rowcount", kept.length + 1);
      const all = kept.length === rows.length ? "" : ` of ${whole.format(rows.length)}`;
      status.textContent = `${whole.format(kept.length)}${all} rows.`;
    }

    const heads = table.columns.map((name, column) => {
      const button = element("button", { type: "button" }, name);
      const numeric = table.rows.some((row) => typeof key(row[column]) === "number");
      const head = element("th", { scope: "col", ...(numeric && { class: "number" }) }, button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        box.scrollTop = 0;
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        rows.sort((a, b) => compare(a.row[column], b.row[column], down));
        show();
      });
      return head;
    });

    const tools = element("div", { class: "tools" });
    if (table.filters.length && rows.length > 6) {
      const search = element("input", { type: "search" });
      search.addEventListener("input", () => {
        words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
        show();
      });
      tools.append(element("label", {}, "Search", search));
      for (const column of table.filters) {
        const values = new Set(table.rows.map((row) => shown(row[column])));
        if (values.size < 2 || values.size > 60) continue;
        const names = [...values].sort(letters.compare);
        const options = names.filter(Boolean).map((name) => element("option", {}, name));
        const select = element("select", {}, element("option", { value: "" }, "all"), ...options);
        select.addEventListener("change", () => {
          chosen.set(column, select.value);
          show();
        });
        tools.append(element("label", {}, table.columns[column], select));
      }
      place.append(tools);
    }
    const drawn = element("table", {}, element("caption", {}, element("span", {}, table.caption)));
    drawn.append(element("thead", {}, element("tr", {}, ...heads)), body);
    const long = rows.length > 30 ? " long" : ""; // the rest is not printed
    const box = element("div", { class: "scroll" + long, tabindex: "0", role: "group", "aria-label": table.caption }, drawn);
    const hint = element("p", { class: "note hint", hidden: "" }, "More columns to the right: scroll the table sideways.");
    place.append(hint, box, status);
    box.addEventListener("scroll", () => {
      if (box.scrollTop + 2 * box.clientHeight > box.scrollHeight) more();
    });
    show();
    // What does not fit is said, and said anew when the window changes.
    new ResizeObserver(() => (hint.hidden = box.scrollWidth <= box.clientWidth + 1)).observe(box);
  }

  function draw(place, found) {
    if (place.dataset.filled) return;
    place.dataset.filled = "yes";
    fill(place, found);
  }

  return { draw, element };
})();

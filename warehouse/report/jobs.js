"use strict";
// The section of a job, shown when a link names it: #job-RUN-NUMBER.
const jobs = (() => {
  const { element } = tables;

  function points(account) {
    const names = ["trained", "forecast", "low", "high", "truth"];
    return {
      forecasts: account.forecasts.map((row) => Object.fromEntries(row.map((v, i) => [names[i], v]))),
      regimes: account.regimes.flatMap(([epoch, end, size]) => [
        { epoch, batch_size: size },
        { epoch: end, batch_size: size },
      ]),
    };
  }

  function figure(label, spec, rows, config) {
    const name = spec.name;
    if (!rows[name].length) return element("p", { class: "missing" }, `${label}: nothing is recorded.`);
    const box = element("div", { class: "chart", role: "img", "aria-label": label });
    const drawn = element("figure", {}, box, element("figcaption", {}, label));
    setTimeout(() => charts.draw(box, name, { ...spec, datasets: [name] }, rows, config));
    return drawn;
  }

  function section(run, job, data) {
    const account = data.jobs[run][job];
    const rows = points(account);
    const title = element("h4", { tabindex: "-1" }, `Job ${job}: ${account.name}`);
    const why = element("ul", {}, ...account.why.map((line) => element("li", {}, line)));
    const round = account.longest === null ? "" : ` --round ${account.longest}`;
    const command = `shockwave why ${job} --run ${run}${round}`;
    const ask = element("p", {}, "Its longest wait, solved again: ", element("code", {}, command));
    const spec = (name) => ({ ...data.jobCharts[name], name });
    const both = element(
      "div",
      { class: "pair" },
      figure("Run time still needed (h): forecast, its 80 % interval, and the truth (dashed).", spec("forecasts"), rows, data.config),
      figure("Batch size by epoch, as observed.", spec("regimes"), rows, data.config),
    );
    const leases = element("div", {});
    const made = element("div", { class: "job" }, title, why, ask, both, leases);
    tables.draw(leases, {
      caption: `Leases of job ${job}`,
      columns: ["from (h)", "to (h)", "GPUs", "ended"],
      rows: account.leases,
      filters: [],
      sections: "",
    });
    return { made, title };
  }

  // Opens what the address names; a job's section comes under the table of its run's jobs.
  function open(hash, data) {
    const [, run, job] = /^#job-(.+)-(\d+)$/.exec(hash) || [];
    if (!run || !data.jobs[run] || !data.jobs[run][job]) return;
    const place = document.querySelector(`[data-table="jobs-${run}"]`);
    for (let part = place; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    place.querySelectorAll(".job").forEach((old) => old.remove());
    const { made, title } = section(run, job, data);
    place.append(made);
    title.focus();
    title.scrollIntoView();
  }

  return { open };
})();

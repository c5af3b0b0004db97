"""The library in a notebook: load runs, compare them, plot one, and fork it.

    marimo edit notebooks/history.py        in a browser, to change
    marimo run notebooks/history.py         in a browser, to read
    python notebooks/history.py             lists the figures of the first run, and a fork of it

The warehouse is `var/warehouse`, or what `SHOCKWAVE_WAREHOUSE` names.
"""

import marimo

app = marimo.App(width="medium", app_title="Shockwave: history")


@app.cell
def _():
    import altair as alt
    import marimo as mo

    import shockwave
    from warehouse.analytics.questions import Analytics
    from warehouse.report import read_report

    records = shockwave.Warehouse()
    return Analytics, alt, mo, records, read_report, shockwave


@app.cell
def _(mo, records, shockwave):
    try:
        history = records.sql("FROM run_summary WHERE makespan_s IS NOT NULL ORDER BY run")
    except shockwave.InputError:  # there is no warehouse either
        history = []
    if not len(history):
        print("No run yet: start one with shockwave simulate.")
    mo.stop(not len(history), mo.md("No run yet: start one with `shockwave simulate`."))
    chosen = mo.ui.dropdown(list(history["run"]), value=history["run"][0], label="Run")
    _shown = ["run", "policy", "trace", "gpus", "jobs", "makespan_s", "mean_jct_s", "worst_rho"]
    _rounded = history[_shown].round(3)
    mo.vstack([mo.md("# Runs"), mo.ui.table(_rounded, selection=None), chosen])
    return chosen, history


@app.cell
def _(alt, history, mo, records):
    _jobs = records.jobs(*history["run"]).merge(history[["run", "policy"]], on="run")
    compared = (
        alt.Chart(_jobs.dropna(subset=["jct_seconds"])[["policy", "run", "jct_seconds", "rho"]])
        .mark_circle(size=50, opacity=0.6)
        .encode(
            x=alt.X("jct_seconds:Q", title="JCT (s)"),
            y=alt.Y("rho:Q", title="finish-time fairness ρ"),
            color="policy:N",
            tooltip=["run", "policy", "jct_seconds", "rho"],
        )
        .properties(height=240, width="container")
    )
    mo.vstack([mo.md("# All runs compared, job by job"), compared])
    return (compared,)


@app.cell
def _(Analytics, chosen, records, read_report):
    figures = read_report(Analytics(records.path), [chosen.value]).figures
    return (figures,)


@app.cell
def _(alt, figures, mo):
    def _shown(figure):
        specs = {  # without what the page of a report reads
            choice: {name: spec[name] for name in spec if name != "usermeta"}
            for choice, spec in figure.specs.items()
        }
        charts = {choice: alt.Chart.from_dict(spec) for choice, spec in specs.items()}
        drawn = list(charts.values()) or [mo.md(f"*{figure.missing}*")]
        shown = mo.ui.tabs(charts) if figure.choices else drawn[0]
        return mo.vstack([mo.md(f"## {figure.title}"), shown, mo.md(figure.about)])

    mo.vstack([_shown(figure) for figure in figures])
    return


@app.cell
def _(figures):
    for _figure in figures:
        print(_figure.key, "drawn" if _figure.chart is not None else _figure.missing)
    return


@app.cell
def _(chosen, history, mo):
    _run = history.set_index("run").loc[chosen.value]
    _most = max(1, int(_run["rounds"]) - 1)
    at = mo.ui.slider(0, _most, value=_most // 2, label="Fork at round", show_value=True)
    gpus = mo.ui.number(1, value=2 * int(_run["gpus"]), label="GPUs from there on")
    go = mo.ui.run_button(label="Fork")
    mo.vstack([mo.md("# What if"), at, gpus, go])
    return at, go, gpus


@app.cell
def _(at, chosen, go, gpus, mo, shockwave):
    mo.stop(mo.running_in_notebook() and not go.value, mo.md("*Press Fork.*"))
    outcome = shockwave.whatif(chosen.value, at.value, shockwave.Change(gpus=gpus.value))
    _rows = [
        {"figure": name, "recorded": before, "what if": after}
        for name, *both in outcome.figures
        for before, after in [[value if value is None else round(value, 3) for value in both]]
    ]
    print(f"forked at round {at.value}: {len(outcome.jobs)} jobs on {gpus.value} GPUs")
    mo.ui.table(_rows, selection=None)
    return (outcome,)


@app.cell
def _(mo):
    mo.md(
        """
        # For a paper

        `shockwave.figures(run, "figures", inches=3.3)` writes the figures as PDF,
        as wide as a column, with their fonts.
        """
    )
    return


if __name__ == "__main__":
    app.run()

"""The figures of a report, one run at a time, from whatever is in the warehouse.

    marimo edit notebooks/history.py        in a browser, to change
    marimo run notebooks/history.py         in a browser, to read
    python notebooks/history.py             lists the figures of the first run

The warehouse is `var/warehouse`, or what `SHOCKWAVE_WAREHOUSE` names.
"""

import marimo

app = marimo.App(width="medium", app_title="Shockwave: history")


@app.cell
def _():
    import os
    from pathlib import Path

    import altair as alt
    import marimo as mo

    from predictor.errors import InputError
    from warehouse.analytics.questions import Analytics
    from warehouse.report import report_of

    analytics = Analytics(Path(os.environ.get("SHOCKWAVE_WAREHOUSE", "var/warehouse")))
    return InputError, alt, mo, analytics, report_of


@app.cell
def _(InputError, mo, analytics):
    try:
        _columns, _rows = analytics.query(
            "SELECT run, policy, trace, gpus, jobs, makespan_s, mean_jct_s, worst_ftf, "
            "unfair_fraction FROM run_summary WHERE makespan_s IS NOT NULL ORDER BY run"
        )
    except InputError:  # there is no warehouse either
        _columns, _rows = [], []
    history = [dict(zip(_columns, row, strict=True)) for row in _rows]
    if not history:
        print("No run yet: start one with shockwave simulate.")
    mo.stop(not history, mo.md("No run yet: start one with `shockwave simulate`."))
    chosen = mo.ui.dropdown([row["run"] for row in history], value=history[0]["run"], label="Run")
    mo.vstack([mo.md("# Runs"), mo.ui.table(history, selection=None), chosen])
    return (chosen,)


@app.cell
def _(chosen, analytics, report_of):
    figures = report_of(analytics, [chosen.value]).figures
    return (figures,)


@app.cell
def _(alt, figures, mo):
    def _shown(figure):
        chart = mo.md(f"*{figure.missing}*")
        if figure.chart is not None:
            chart = alt.Chart.from_dict(figure.spec)
        return mo.vstack([mo.md(f"## {figure.title}"), chart, mo.md(figure.about)])

    mo.vstack([_shown(figure) for figure in figures])
    return


@app.cell
def _(figures):
    for _figure in figures:
        print(_figure.key, "drawn" if _figure.chart is not None else _figure.missing)
    return


if __name__ == "__main__":
    app.run()

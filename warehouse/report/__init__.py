"""Reports: one self-contained page about a few runs, and its figures for papers."""

from warehouse.report.contents import Report, read_report
from warehouse.report.output import page_path, report_name
from warehouse.report.page import write_page, write_report
from warehouse.report.paper import write_figures

__all__ = [
    "Report",
    "page_path",
    "read_report",
    "report_name",
    "write_figures",
    "write_page",
    "write_report",
]

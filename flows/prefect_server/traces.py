"""The page on which traces are uploaded to `shockwave up`, for its form `simulate` to name."""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive

from warehouse.store.durable import write_file

MOST_BYTES = 2**28
"""Most bytes of one upload, as they are sent. An engineering bound."""

MOST_FILES = 20
"""Most files of one upload: a trace has two tables. An engineering bound."""

NAME = re.compile(r"\w[\w.-]{0,99}")
"""Pattern of the names of uploaded files."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Traces</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 44rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8886 }}
td + td, th + th {{ text-align: right }}
[role=alert] {{ font-weight: bold }}
</style></head><body>
<h1>Traces</h1>
<p>The deployment <a href="/deployments">simulate</a> runs a file of this list as its
<i>Trace</i>, with its <i>Profile</i> and <i>Regimes</i> if it needs them.</p>
{alert}{listed}
<form method="post" enctype="multipart/form-data">
<p><label>Files: <input type="file" name="file" multiple required></label>
<button>Upload</button></p></form>
</body></html>
"""


def traces(folder: Path) -> Starlette:
    """An app with one address, which lists a folder's files and takes new ones.

    Args:
        folder: Where they are kept.
    """

    async def show(request: Request) -> Response:
        return HTMLResponse(_page(folder))

    async def upload(request: Request) -> Response:
        bounded = Request(request.scope, _bounded(request.receive))
        try:
            async with bounded.form(max_files=MOST_FILES, max_fields=0) as form:
                files = [file for file in form.getlist("file") if isinstance(file, UploadFile)]
                refused = _refused(files)
                if refused:
                    return HTMLResponse(_page(folder, refused), 400)
                for file in files:
                    with write_file(folder / str(file.filename)) as kept:
                        while part := await file.read(2**20):
                            kept.write(part)
        except _TooLargeError:
            problem = f"the files are larger than {MOST_BYTES // 2**20} MiB together"
            return HTMLResponse(_page(folder, problem), 413)
        except OSError as error:
            problem = f"{folder} cannot be written ({error.strerror or error})"
            return HTMLResponse(_page(folder, problem), 507)
        return RedirectResponse(request.url.path, 303)

    return Starlette(
        routes=[Route("/traces", show), Route("/traces", upload, methods=["POST"])],
    )


class _TooLargeError(Exception):
    """More bytes or files were sent than are accepted."""


def _bounded(receive: Receive) -> Receive:
    """The request's body up to the bound; the rest is read and dropped, for the answer to be seen.

    Raises, when called:
        _TooLargeError: There was more.
    """
    taken = 0

    async def received() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MOST_BYTES:
            while message.get("more_body", False):
                message = await receive()
            raise _TooLargeError
        return message

    return received


def _refused(files: Sequence[UploadFile]) -> str:
    """Why files are refused; empty if they are not."""
    if not files:
        return "no file was chosen"
    for file in files:
        name = file.filename or ""
        if not NAME.fullmatch(name):
            return f"{name!r} is no name of letters, digits, dots, dashes and underscores"
    return ""


def _page(folder: Path, problem: str = "") -> str:
    there = folder.iterdir() if folder.is_dir() else ()
    files = sorted(path for path in there if NAME.fullmatch(path.name) and path.is_file())
    rows = "".join(
        f"<tr><td>{html.escape(file.name)}</td><td>{file.stat().st_size:,} B</td></tr>"
        for file in files
    )
    listed = f"<table><tr><th>File</th><th>Size</th></tr>{rows}</table>" if files else ""
    alert = f'<p role="alert">{html.escape(problem)}</p>' if problem else ""
    return _PAGE.format(alert=alert, listed=listed or "<p>No file yet.</p>")

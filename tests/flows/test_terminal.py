"""Tables show texts as they are."""

import pytest

from flows.cli.terminal import counting, print_side_by_side, print_table


@pytest.mark.parametrize("text", ["[/x]", "[link=http://x]here[/link]", "[bold]", "a\\[b]", ":+1:"])
def test_a_text_is_no_markup(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["node", text], [["one", text]])
    print_side_by_side([{"policy": text, "reason": text}], "policy")
    lines = [line.split(maxsplit=1)[-1].strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [text] * 4


def test_a_note_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with counting("cells", quiet=False) as count:
        count.note("job 3: [/x]")
    assert capsys.readouterr().err.strip().startswith("job 3: [/x]")

"""Write the manual pages from the code: `python -m tests.docs.manual` writes the files of `share/man/man1`.

`tailrace(1)` lists the commands; each command has a page of its own, for example `tailrace-import(1)`.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from pathlib import Path

import click

from tailrace import __version__
from tailrace.cli.commands import COMMANDS, GROUPS, ExitCode, load, tailrace as command_line
from tests.docs.reference import PLACES, above, examples_of

DIRECTORY = Path(__file__).parents[2] / "share/man/man1"

ENVIRONMENT = {
    "TAILRACE_CONFIG": "Configuration file, if --config names none.",
    "TAILRACE_SECTION_KEY": "Any key of the configuration, for example TAILRACE_STORE_PATH.",
    "NO_COLOR": "If it is set and not empty, output has neither colours nor bold type.",
}


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    return {"tailrace.1": _overview()} | {
        f"tailrace-{name}.1": _command(name, load(name)) for name in COMMANDS
    }


def _overview() -> str:
    parts = [
        _head("tailrace", command_line.help),
        ".SH SYNOPSIS",
        ".B tailrace",
        "COMMAND [OPTIONS] [ARGS]...",
    ]
    for title, commands in GROUPS.items():
        parts.append(f".SH {title.upper()}")
        for name, text in commands.items():
            parts += [".TP", rf"\fBtailrace\-{name}\fR(1)", _text(text)]
    parts += [".SH OPTIONS", *_options(command_line, above())]
    parts.append(".SH EXIT STATUS")
    for code in ExitCode:
        parts += [".TP", f"\\fB{code.value}\\fR", _text(code.name.lower().replace("_", " "))]
    parts += [".SH CONFIGURATION", "\n.PP\n".join(_text(line) for line in PLACES if line)]
    parts.append(".SH ENVIRONMENT")
    for name, meaning in ENVIRONMENT.items():
        parts += [".TP", f"\\fB{name}\\fR", _text(meaning)]
    return "\n".join([*parts, ""])


def _command(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, parent=above())
    usage = " ".join(command.collect_usage_pieces(context))
    first, *rest = cleandoc(command.help).split("\n\n")
    parts = [
        _head(f"tailrace-{name}", COMMANDS[name]),
        ".SH SYNOPSIS",
        f".B tailrace {name}",
        _text(usage),
    ]
    parts.append(".SH DESCRIPTION")
    parts.append("\n.PP\n".join(map(_text, [first, *rest])))
    parts += [".SH OPTIONS", *_options(command, context)]
    parts += [".SH EXAMPLES", ".EX", *map(_escaped, examples_of(name)), ".EE"]
    parts += [".SH SEE ALSO", r"\fBtailrace\fR(1)"]
    return "\n".join([*parts, ""])


def _head(name: str, summary: str) -> str:
    # Without a date, a page changes only if its text does.
    title = f'.TH "{name.upper()}" 1 "" "Tailrace {__version__}" "User Commands"'
    return f"{title}\n.SH NAME\n{_escaped(name)} \\- {_text(cleandoc(summary)).rstrip('.')}"


def _options(command: click.Command, context: click.Context) -> list[str]:
    lines = []
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            lines += [".TP", f"\\fB{_escaped(record[0])}\\fR", _text(record[1])]
    return lines


def _text(paragraph: str) -> str:
    """Return a paragraph in which names in backquotes are bold."""
    words = _escaped(" ".join(paragraph.split()))
    return re.sub(r"`([^`]+)`", r"\\fB\1\\fR", words)


def _escaped(text: str) -> str:
    """Return text that troff prints as it stands."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    safe = re.sub(r"[^\x00-\x7f]", lambda match: f"\\[u{ord(match[0]):04X}]", safe)
    return f"\\&{safe}" if safe.startswith((".", "\\(aq")) else safe


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for old in DIRECTORY.glob("*.1"):
        old.unlink()
    for name, page in pages().items():
        (DIRECTORY / name).write_text(page)


if __name__ == "__main__":
    main()

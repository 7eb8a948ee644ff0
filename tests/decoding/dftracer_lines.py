"""Make records as DFTracer 2.2.0 writes them, for the tests of the DFTracer decoder."""

from __future__ import annotations

HOST = "6882804a826580cd"


def event(number: int | str, **changed: object) -> str:
    """Return the line of a complete event. `changed` replaces fields. `args` is the text between the braces of the
    arguments, or None for a record without arguments.
    """
    fields: dict[str, object] = {
        "name": "read", "cat": "POSIX", "pid": 7, "tid": 8, "ts": 1_000 + int(str(number).strip(chr(34))), "dur": 5, "ph": 1,
        "args": f'"hhash":"{HOST}","ret":0',
    } | changed  # fmt: skip
    args = "" if fields["args"] is None else f',"args":{{{fields["args"]}}}'
    return (
        f'{{"id":{number},"name":"{fields["name"]}","cat":"{fields["cat"]}","type":3,'
        f'"pid":{fields["pid"]},"tid":{fields["tid"]},"ts":{fields["ts"]},"dur":{fields["dur"]},'
        f'"ph":{fields["ph"]}{args}}}'
    )


def start(number: int = 1) -> str:
    return event(number, name="start", cat="dftracer", args=None)


def end(number: int, aggregation: int | None = 0, **changed: object) -> str:
    """Return the line of the record `end`. `aggregation` is the value of its setting `aggregation_enable`, or None for
    a record without this setting.
    """
    args = None if aggregation is None else f'"cfg":{{"aggregation_enable":{aggregation}}}'
    return event(number, name="end", cat="dftracer", args=args, **changed)


def metadata(kind: str, name: str, value: str) -> str:
    return (
        f'{{"name":"{kind}","cat":"dftracer","type":1,"pid":7,"tid":7,"ph":4,'
        f'"args":{{"hhash":"{HOST}","name":"{name}","value":"{value}"}}}}'
    )


def text(*lines: str) -> bytes:
    return "".join(line + "\n" for line in lines).encode(errors="surrogateescape")

"""Check that the toy format obeys the contract, and that its sample has the expected records."""

from __future__ import annotations

from toy_format import FORMAT

from tailrace.testing import TraceSample, check_format, spelled

LINES = b"n 31 main\nk 31\ne one\nm 3\nwhat?\ne two\n" + b"0" * 65 + b"\ne torn"
SAMPLE = TraceSample(
    FORMAT, LINES, 64, path="/runs/a.toy", documents=[("names.txt", b"32 other\n")]
)

EXPECTED = """\
["offset","size","kind","stream","substream","counter","name","category","id","parent","start","end","attributes","flaw","detail"]
[0,0,"name","",null,null,"other",null,null,null,null,null,{"$key":"32","$scope":"group"}]
[0,10,"name","",null,null,"main",null,null,null,null,null,{"$key":"31","$scope":"session"}]
[10,5,"instant","1",null,null,null,null,null,null,null,null,{"$name": "31"}]
[15,6,"instant","1",null,null,"one"]
[21,0,"gap","",null,7,"network",null,null,null,null,null,null,null,{"count":3,"detail":"counted"}]
[21,4,"instant","1",null,null,"m"]
[25,6,"malformed","",null,null,null,null,null,null,null,null,null,"bad_line"]
[31,6,"instant","1",null,null,"two"]
[37,64,"malformed","",null,null,null,null,null,null,null,null,null,"too_long"]
[101,2,"malformed","",null,null,null,null,null,null,null,null,null,"too_long"]
[103,6,"malformed","",null,null,null,null,null,null,null,null,null,"truncated"]
"""


def test_the_format_obeys_the_contract() -> None:
    check_format(FORMAT, [SAMPLE])


def test_the_records_are_as_expected() -> None:
    assert spelled(SAMPLE.records) == EXPECTED.splitlines()

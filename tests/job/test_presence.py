"""How each rank ended, by the logs of its nodes, which a kill may cut anywhere."""

from __future__ import annotations

from msgspec import structs

from tailrace.job.presence import RankState, presence
from tailrace.run.certificate import total
from tailrace.run.ranks import NodeBegan, NodeEnded, RankCame, RankLeft, RankLog, read


def began(node="n1", job="17"):
    return NodeBegan(time=1, node=node, host="h", job=job, size=3, local_size=None)


def came(rank, time=2, size=3):
    return RankCame(time=time, rank=rank, job="17", size=size, pid=5, arguments=["x"])


def left(rank, status, time=3):
    return RankLeft(time=time, rank=rank, job="17", exit_status=status)


def states(*logs, whole=True):
    return {r.rank: (r.state, r.signal) for r in presence(logs, whole=whole).ranks}


def test_each_end_has_its_name():
    log = [
        began(),
        *map(came, range(6)),
        left(0, 0),
        left(1, 3),
        left(2, 137),
        left(3, None),
        left(4, 192),
    ]
    assert states(log) == {
        0: (RankState.ENDED, None), 1: (RankState.ENDED, None), 2: (RankState.KILLED, "SIGKILL"),
        3: (RankState.KILLED, None), 4: (RankState.KILLED, "SIGRTMAX"), 5: (RankState.UNKNOWN, None),
    }  # fmt: skip


def test_a_rank_that_no_node_saw_never_came_if_these_are_all_nodes():
    logs = ([began(), came(0), left(0, 0)], [began("n2"), came(2), left(2, 0)])
    assert states(*logs)[1] == (RankState.MISSING, None)
    assert states(*logs, whole=False).keys() == {0, 2}
    assert states([began(), came(0, size=None)]).keys() == {0}


def test_a_rank_that_came_twice_counts_as_it_came_last():
    again = [began(), came(0, 4), left(0, 0, 5), NodeEnded(time=6)]
    first = [began(), came(0), left(0, None)]
    for logs in ([*first, *again],), (first, again), (again, first):
        assert states(*logs)[0] == (RankState.ENDED, None)
    (node,) = presence([[*first, *again]]).nodes
    assert (node.ranks, node.collectors, node.collectors_ended) == (1, 2, 1)


def test_what_a_nodes_collectors_had_no_room_for_is_summed():
    ends = [NodeEnded(time=6, no_room={"too many connections": count}) for count in (2, 3)]
    (node,) = presence([[began(), ends[0], began(), ends[1]]]).nodes
    assert node.no_room == 5
    assert node.unknown
    assert total([], [node]).unknown
    assert not total([]).unknown


def test_traces_without_content_are_summed():
    ends = [NodeEnded(time=6, empty=count) for count in (2, 3)]
    (node,) = presence([[began(), ends[0], began(), ends[1]]]).nodes
    assert (node.empty, node.unknown) == (5, True)
    assert not structs.replace(node, empty=0).unknown
    (node,) = presence([[began(), ends[0], began(), NodeEnded(time=6)]]).nodes
    assert (node.empty, node.unknown) == (None, True)  # nobody could search for them


def test_a_line_that_was_cut_off_is_none(tmp_path):
    log = RankLog(tmp_path)
    for line in (began(), came(0), left(0, 0)):
        log.append(line)
    path = tmp_path / "ranks.jsonl"
    assert len(read(tmp_path)) == 3
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert len(read(tmp_path)) == whole[:size].count(b"\n")

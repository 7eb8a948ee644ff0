"""List the events of ovni's eight models: name, payload, and the span that the event opens or closes.

An event's MCV is three characters: model, category, value. The table has a line for each single event, and for each
pair of a begin and an end:

    ROLE  MCV [MCV]  name  (FIELD:TYPE …)

    ROLE    of a begin and its end:
    call      the thread does something inside a library
    thread    the thread's role in the library: worker, leader, main
    task      the body of a task, or a worksharing; matched by the fields, too
    pause     a body between pause and resume; on the channel `task`
    alone     something that is not the thread's work; encloses no spans of other channels
    mark      a mark of the program; each type of marks is a channel; matched by the mark's value

    ROLE    of a single event:
    at        something happens at one time
    state     the thread's state from now on
    set       a mark of the program replaces the previous mark of its type
    create    a task is created, of a type
    type      a task type gets its label
    deltas    a list of i64: hardware counters since the last such event

Each pair belongs to a channel, by default one for each role and model. An end matches only begins of its channel. A
field that some producers omit ends in "?". Payload bytes after the fields are kept as bytes.
Tailrace chose the names. Source of pairs and payloads: the models at ovni 1.14 (ovni 1.1.0, nanos6 1.1.0, nosv 2.7.0,
nodes 1.0.0, tampi 1.0.0, mpi 1.0.0, kernel 1.0.0, openmp 1.2.1)."""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

OWN = frozenset({"alone", "mark"})
"""Kinds of begin and end events whose spans nest only within their own channel. Each such channel has its own stack."""

JUMBO = frozenset({"type", "deltas"})

_TYPES = {"i32": "i", "u32": "I", "i64": "q", "u64": "Q"}


class PayloadLayout(NamedTuple):
    """The fields of a payload that has at least `size` bytes."""

    size: int
    struct: Struct
    members: str  # Template for the field values as JSON members.
    key: str  # Template for the field values as text, which an end and its begin share.
    names: tuple[str, ...]


class EventType(NamedTuple):
    """A type of ovni event, identified by its MCV: the three characters model, category and value."""

    mcv: str
    model: str
    role: str
    name: str
    opens: bool | None  # True for the begin of a span, false for its end, otherwise None.
    channel: str  # Channel of the span.
    begin: str  # MCV of the span's begin.
    layouts: dict[str, tuple[PayloadLayout, ...]]  # By byte order; the longest layout first.

    @property
    def jumbo(self) -> bool:
        return self.role in JUMBO

    @property
    def least(self) -> int:
        """Minimum size (bytes) of the payload of an event of this type."""
        return self.layouts["<"][-1].size

    def channel_of(self, values: tuple[int, ...]) -> str:
        """Return the channel of an event with these field values. An end matches only begins of its channel."""
        return f"{self.channel} {values[1]}" if self.role == "mark" else self.channel


def layouts_of(fields: str | None) -> dict[str, tuple[PayloadLayout, ...]]:
    split = [field.split(":") for field in (fields or "").split()]
    least = sum(not kind.endswith("?") for _, kind in split)
    layouts: dict[str, tuple[PayloadLayout, ...]] = {}
    for order in "<>":
        some = []
        for count in range(len(split), least - 1, -1):
            struct = Struct(order + "".join(_TYPES[kind.rstrip("?")] for _, kind in split[:count]))
            names = tuple(name for name, _ in split[:count])
            members = "".join(f',"{name}":%d' for name in names)
            some.append(PayloadLayout(struct.size, struct, members, " %d" * count, names))
        layouts[order] = tuple(some)
    return layouts


_TABLE = """
O ovni
  state   OHx      thread runs            (cpu:i32 creator:i32 tag:u64)
  state   OHp      thread pauses
  state   OHr      thread resumes
  state   OHc      thread cools down
  state   OHw      thread warms up
  state   OHe      thread ends
  at      OHC      create thread          (cpu:i32 tag:u64)
  at      OAs      own affinity           (cpu:i32)
  at      OAr      affinity of a thread   (cpu:i32 thread:i32)
  at      OCn      number of CPUs         (cpus:i32 cpus_max:i32?)
  at      OB.      burst
  alone   OF[ OF]  flush to disk
  alone   OU[ OU]  late events
  mark    OM[ OM]  mark                   (value:i64 type:i32)
  set     OM=      mark                   (value:i64 type:i32)

V nosv
  type    VYc      task type              (type:u32)
  create  VTc      task                   (task:u32 type:u32)
  create  VTC      parallel task          (task:u32 type:u32)
  task    VTx VTe  task                   (task:u32 body:u32?)
  pause   VTp VTr  task paused            (task:u32 body:u32?)
  deltas  VWC      hardware counters
  call    VS[ VS]  serve the scheduler
  call    VSN VSn  serve the scheduler without blocking
  call    VSh VSf  hungry
  at      VSr      receive a task
  at      VSs      send a task
  at      VS@      assign a task to itself
  call    VU[ VU]  submit a task
  call    VMa VMA  allocate memory
  call    VMf VMF  free memory
  call    VAa VAA  nosv_attach
  call    VAb VAB  nosv_barrier_wait
  call    VAc VAC  nosv_schedpoint
  call    VAd VAD  nosv_destroy
  call    VAe VAE  nosv_detach
  call    VAg VAG  nosv_cond_signal
  call    VAi VAI  nosv_wait
  call    VAj VAJ  nosv_join
  call    VAk VAK  nosv_cond_broadcast
  call    VAl VAL  nosv_mutex_lock
  call    VAm VAM  nosv_join_all
  call    VAn VAN  nosv_wait_all
  call    VAo VAO  nosv_cond_wait
  call    VAp VAP  nosv_pause
  call    VAr VAR  nosv_create
  call    VAs VAS  nosv_submit
  call    VAt VAT  nosv_mutex_trylock
  call    VAu VAU  nosv_mutex_unlock
  call    VAw VAW  nosv_waitfor
  call    VAy VAY  nosv_yield
  call    VHw VHW  worker
  call    VHd VHD  delegate
  at      VHa      attached
  at      VHA      detached
  at      VPp      progressing
  at      VPr      resting
  at      VPa      absorbing noise

6 nanos6
  type    6Yc      task type              (type:u32)
  create  6Tc      task                   (task:u32 type:u32)
  at      6TC      task, old event
  task    6Tx 6Te  task                   (task:u32)
  pause   6Tp 6Tr  task paused            (task:u32)
  call    6W[ 6W]  look for work
  call    6Wt 6WT  handle a task
  call    6Ww 6WW  switch to another worker
  call    6Wm 6WM  move to another CPU
  call    6Ws 6WS  suspend
  call    6Wr 6WR  resume another worker
  call    6Wg 6WG  absorb system noise
  at      6W*      wake another worker
  call    6C[ 6C]  create a task
  call    6U[ 6U]  submit a task
  call    6F[ 6F]  spawn a function
  call    6t[ 6t]  in the body
  call    6O[ 6O]  help with a taskfor
  call    6Ma 6MA  allocate memory
  call    6Mf 6MF  free memory
  call    6Dr 6DR  register dependencies
  call    6Du 6DU  unregister dependencies
  call    6S[ 6S]  serve the scheduler
  call    6Sa 6SA  add a ready task
  call    6Sp 6SP  process ready tasks
  at      6S@      assign a task to itself
  at      6Sr      receive a task
  at      6Ss      send a task
  call    6Bb 6BB  block the task
  call    6Bu 6BU  unblock a task
  call    6Bw 6BW  taskwait
  call    6Bf 6BF  wait for a time
  thread  6He 6HE  external thread
  thread  6Hw 6HW  worker
  thread  6Hl 6HL  leader
  thread  6Hm 6HM  main thread
  at      6Pp      progressing
  at      6Pr      resting
  at      6Pa      absorbing noise

D nodes
  call    DR[ DR]  register accesses
  call    DU[ DU]  unregister accesses
  call    DW[ DW]  wait for an if0 task
  call    DI[ DI]  run an if0 task inline
  call    DT[ DT]  taskwait
  call    DC[ DC]  create a task
  call    DS[ DS]  submit a task
  call    DP[ DP]  spawn a function

T tampi
  call    TCi TCI  issue a communication
  call    TGc TGC  check the pending requests
  call    TLi TLI  library call
  call    TLp TLP  polling call
  call    TQa TQA  queue a ticket
  call    TQt TQT  move tickets out of the queues
  call    TRc TRC  finish a request
  call    TRt TRT  test a request
  call    TRa TRA  test all requests
  call    TRs TRS  test some requests
  call    TTc TTC  create a ticket
  call    TTw TTW  wait for a ticket

M mpi
  call    MUi MUI  MPI_Init
  call    MUt MUT  MPI_Init_thread
  call    MUf MUF  MPI_Finalize
  call    MW[ MW]  MPI_Wait
  call    MWa MWA  MPI_Waitall
  call    MWy MWY  MPI_Waitany
  call    MWs MWS  MPI_Waitsome
  call    MT[ MT]  MPI_Test
  call    MTa MTA  MPI_Testall
  call    MTy MTY  MPI_Testany
  call    MTs MTS  MPI_Testsome
  call    MR[ MR]  MPI_Recv
  call    MRs MRS  MPI_Sendrecv
  call    MRo MRO  MPI_Sendrecv_replace
  call    MS[ MS]  MPI_Send
  call    MSb MSB  MPI_Bsend
  call    MSr MSR  MPI_Rsend
  call    MSs MSS  MPI_Ssend
  call    MAg MAG  MPI_Allgather
  call    MAr MAR  MPI_Allreduce
  call    MAa MAA  MPI_Alltoall
  call    MCb MCB  MPI_Barrier
  call    MCe MCE  MPI_Exscan
  call    MCs MCS  MPI_Scan
  call    MDb MDB  MPI_Bcast
  call    MDg MDG  MPI_Gather
  call    MDs MDS  MPI_Scatter
  call    ME[ ME]  MPI_Reduce
  call    MEs MES  MPI_Reduce_scatter
  call    MEb MEB  MPI_Reduce_scatter_block
  call    Mr[ Mr]  MPI_Irecv
  call    Mrs MrS  MPI_Isendrecv
  call    Mro MrO  MPI_Isendrecv_replace
  call    Ms[ Ms]  MPI_Isend
  call    Msb MsB  MPI_Ibsend
  call    Msr MsR  MPI_Irsend
  call    Mss MsS  MPI_Issend
  call    Mag MaG  MPI_Iallgather
  call    Mar MaR  MPI_Iallreduce
  call    Maa MaA  MPI_Ialltoall
  call    Mcb McB  MPI_Ibarrier
  call    Mce McE  MPI_Iexscan
  call    Mcs McS  MPI_Iscan
  call    Mdb MdB  MPI_Ibcast
  call    Mdg MdG  MPI_Igather
  call    Mds MdS  MPI_Iscatter
  call    Me[ Me]  MPI_Ireduce
  call    Mes MeS  MPI_Ireduce_scatter
  call    Meb MeB  MPI_Ireduce_scatter_block

K kernel
  alone   KCO KCI  out of the CPU

P openmp
  type    POc      task type              (type:u32)
  create  PPc      task                   (task:u32 type:u32)
  task    PPx PPe  task                   (task:u32)
  task    PQx PQe  worksharing            (type:u32)
  call    PBb PBB  barrier
  call    PBj PBJ  join barrier
  call    PBf PBF  fork barrier
  call    PBt PBT  tasking barrier
  call    PBs PBS  spin
  call    PI[ PI]  critical section
  call    PIa PIA  enter a critical section
  call    PIr PIR  leave a critical section
  call    PWd PWD  distribute
  call    PWy PWY  set up a dynamic for
  call    PWc PWC  chunk of a dynamic for
  call    PWs PWS  static for
  call    PWe PWE  section
  call    PWi PWI  single
  call    PT[ PT]  run a task
  call    PTa PTA  allocate a task
  call    PTc PTC  check dependencies
  call    PTd PTD  duplicate a task
  call    PTr PTR  release dependencies
  call    PTi PTI  run an if0 task
  call    PTs PTS  schedule a task
  call    PTg PTG  taskgroup
  call    PTt PTT  taskwait
  call    PTw PTW  wait for dependencies of a taskwait
  call    PTy PTY  taskyield
  call    PA[ PA]  attached
  call    PMi PMI  microtask of the runtime
  call    PMu PMU  microtask of the user
  call    PH[ PH]  worker loop
  call    PCf PCF  fork
  call    PCi PCI  initialize
"""

_LINE = re.compile(r"(\w+) +(\S{3})(?: (\S{3}))?  +([^()]+?)(?: +\((.+)\))?")


def _read_table() -> dict[bytes, EventType]:
    events: dict[bytes, EventType] = {}
    model = ""
    for line in filter(None, _TABLE.splitlines()):
        if not line.startswith(" "):
            model = line[2:]
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise AssertionError(line)
        role, begin, end, name, fields = match.groups()
        channel = begin if role == "alone" else model + (" task" if role == "pause" else f" {role}")
        for mcv in filter(None, (begin, end)):
            opens = mcv == begin if end else None
            events[mcv.encode()] = EventType(
                mcv, model, role, name, opens, channel, begin, layouts_of(fields)
            )
    return events


EVENTS = _read_table()
"""The types of all known ovni events, by MCV (model, category and value)."""

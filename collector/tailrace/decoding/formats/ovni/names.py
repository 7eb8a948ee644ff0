"""Store the names of tasks, task types and marks (events that the program itself defines) that one stream defines.

Any thread of a process may define tasks and their types, and any thread of a trace may describe marks. If this stream
has not defined a name, events refer to it (`model.record.NAME_OF_ROW`) by one of these keys, whose scope is the trace:

    task_type:LOOM/PID:V7    the type 7 of the process, in the model V
    task:LOOM/PID:V12        the task 12 of the process, in the model V
    mark:TYPE                the title of a mark's type
    mark:TYPE:VALUE          the label of a mark's value"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from json.encoder import encode_basestring as quote

import msgspec

from tailrace.decoding.formats.ovni.table import EventType
from tailrace.model.holding import AskedNames, Evicted
from tailrace.model.record import KEY, NAME_OF_ROW, NAMES_OF_MEMBERS, SCOPE

TYPES_MAX, TASKS_MAX, MARKS_MAX = 512, 2048, 1024
"""Maximum numbers of stored task types, tasks and marks (program-defined events). Beyond a maximum, the oldest entry is
removed, and later events have its key instead of its name."""
MARKED_MAX = 64
"""Maximum number of cached values of marks (program-defined events), each with its name and JSON members."""
NAME_MAX = 256
"""Maximum number of characters of a stored name. If a name is longer, events have its key instead of the name."""

Named = tuple[str | None, str]
"""The name of an event or None, and JSON members for its attributes. If the name is unknown, the members have its
key."""

Naming = Callable[["Names", EventType, tuple[int, ...]], Named]
"""A function that names an event, given the names of the stream, the event's type, and the values of its fields."""


class NamesState(msgspec.Struct):
    """The part of `Names` that a checkpoint stores."""

    process: str = ""
    types: dict[str, str] = {}  # Labels of task types, by model and id ("V7").
    tasks: dict[str, int] = {}  # Types of tasks, by model and id.
    marks: dict[str, str] = {}  # Titles by type ("5"), and labels by type and value ("5:1").
    asked: dict[str, bool | None] = {}  # Keys that events refer to and that have no name.


NAMED_BYTES, TASK_BYTES = 1536, 256
"""Memory (bytes) of the longest stored name of a task type or of a mark (program-defined event), and memory of a
task."""


class Names:
    """The names of tasks, task types and marks (program-defined events) that one stream defines. When memory is short,
    tasks are evicted first, and marks last."""

    what = Evicted.NAMES

    def __init__(self, state: NamesState) -> None:
        # Use an OrderedDict: in a plain dict, a search for the oldest task would read the empty slots of all removed
        # tasks.
        state.tasks = OrderedDict(state.tasks)
        self.state = state
        self.asked = AskedNames(state.asked)
        self.evicted = 0
        # cache of the results of `of_mark`, by type and value
        self._marked: dict[tuple[int, int], Named] = {}

    @property
    def held(self) -> int:
        state = self.state
        named = NAMED_BYTES * (len(state.types) + len(state.marks))
        return TASK_BYTES * len(state.tasks) + named + self.asked.held

    def give_way(self, size: int) -> None:
        goal = self.held - size
        tasks = self.state.tasks
        while tasks and self.held > goal:
            del tasks[next(iter(tasks))]
            self.evicted += 1
        types = self.type_key("", 0)[:-1]
        for prefix, names in ((types, self.state.types), ("mark:", self.state.marks)):
            while names and self.held > goal:
                self._evict(prefix, names)
                self.evicted += 1
        if self.held > goal:
            self.evicted += self.asked.forget()
        self._marked.clear()

    def type_key(self, model: str, type_: int) -> str:
        return f"task_type:{self.state.process}:{model}{type_}"

    def task_key(self, model: str, task: int) -> str:
        return f"task:{self.state.process}:{model}{task}"

    def learn_type(self, model: str, type_: int, label: str) -> None:
        types = self.type_key("", 0)[:-1]
        self._keep(types, self.state.types, f"{model}{type_}", label, TYPES_MAX)

    def learn_task(self, model: str, task: int, type_: int) -> None:
        tasks = self.state.tasks
        # A producer may use the id of an old task again for a new task.
        tasks.pop(f"{model}{task}", None)
        if len(tasks) >= TASKS_MAX:
            del tasks[next(iter(tasks))]
        tasks[f"{model}{task}"] = type_

    def learn_mark(self, key: str, name: str) -> str | None:
        """Store a name of marks (program-defined events): the title of a type (`key` is "TYPE"), or the label of a
        value ("TYPE:VALUE"). Return the previous name for `key`, or None."""
        before = self.state.marks.get(key)
        self._marked.clear()
        self._keep("mark:", self.state.marks, key, name, MARKS_MAX)
        return before

    def _keep(
        self, prefix: str, names: dict[str, str], key: str, name: str, entries_max: int
    ) -> None:
        self.asked.given(prefix + key)
        names.pop(key, None)
        if len(name) > NAME_MAX:
            self.asked.gone(prefix + key)
            return
        if len(names) >= entries_max:
            self._evict(prefix, names)
        names[key] = name

    def _evict(self, prefix: str, names: dict[str, str]) -> None:
        key = next(iter(names))
        del names[key]
        self.asked.gone(prefix + key)

    def of_type(self, model: str, type_: int) -> Named:
        label = self.state.types.get(f"{model}{type_}")
        if label:
            return label, ""
        key = self.type_key(model, type_)
        self.asked.ask(key)
        return None, _ask(key)

    # Methods of the type `Naming`. Each of them names events with a certain `EventType.role` (kind of event in the
    # module `table`).

    def of_task(self, event: EventType, values: tuple[int, ...]) -> Named:
        """Name an event about a task's body by the label of the task's type."""
        model, task = event.mcv[0], values[0]
        type_ = self.state.tasks.get(f"{model}{task}")
        if type_ is None:
            return None, _ask(self.task_key(model, task))
        return self.of_type(model, type_)

    def of_worksharing(self, event: EventType, values: tuple[int, ...]) -> Named:
        return self.of_type(event.mcv[0], values[0])

    def of_created(self, event: EventType, values: tuple[int, ...]) -> Named:
        """Store a created task, and name its event by its type. The members have the key by which events of other
        streams refer to the task."""
        model = event.mcv[0]
        task, type_ = values
        self.learn_task(model, task, type_)
        name, ask = self.of_type(model, type_)
        return name, ask + gives(self.task_key(model, task))

    def of_mark(self, event: EventType, values: tuple[int, ...]) -> Named:  # noqa: ARG002
        """Name the event of a mark (program-defined event) by the label of the mark's value or, without a label, by the
        title of the mark's type."""
        value, type_ = values
        if known := self._marked.get((type_, value)):
            return known
        title, label = self._title_and_label(type_, value)
        about = f',"title":{quote(title)}' if title else _ask_member("title", f"mark:{type_}")
        if not label:
            about += _ask(f"mark:{type_}:{value}\nmark:{type_}")
        if len(self._marked) >= MARKED_MAX:
            self._marked.clear()
        self._marked[type_, value] = named = (label, about)
        return named

    def of_set(self, event: EventType, values: tuple[int, ...]) -> Named:  # noqa: ARG002
        """Name an event that sets a new value of a mark (program-defined event) by the title of the mark's type."""
        value, type_ = values
        title, label = self._title_and_label(type_, value)
        about = _ask_member("label", f"mark:{type_}:{value}")
        if label:
            about = f',"label":{quote(label)}'
        return title, about if title else _ask(f"mark:{type_}") + about

    def _title_and_label(self, type_: int, value: int) -> tuple[str | None, str | None]:
        marks = self.state.marks
        if not (title := marks.get(f"{type_}")):
            self.asked.ask(f"mark:{type_}")
        return title, marks.get(f"{type_}:{value}")


def around_task(names: Names) -> tuple[str, str, str]:
    """Return three texts from which JSON members with a task's id are built. The first text and the id begin the member
    that refers to the task's name. The second text, the id and the third text define the name."""
    key = names.task_key("", 0)
    behind = f'","{SCOPE}":"group"'
    return _ask(key)[:-2], gives(key).removesuffix(f"0{behind}"), behind


def naming(event: EventType) -> Naming | None:
    """Return the function that names an event of this type; None if all such events have the name in `table`."""
    if event.opens is False:
        return None
    return Names.of_worksharing if event.mcv == "PQx" else _NAMINGS.get(event.role)


def gives(key: str) -> str:
    """Return the JSON members of a `name` row: the key that gets the name, and the scope of the name."""
    return f',"{KEY}":{quote(key)},"{SCOPE}":"group"'


_NAMINGS: dict[str, Naming] = {
    "task": Names.of_task,
    "mark": Names.of_mark,
    "set": Names.of_set,
    "create": Names.of_created,
}
"""The method that names an event, by the event's `EventType.role` (kind of event in the module `table`)."""


def _ask(key: str) -> str:
    return f',"{NAME_OF_ROW}":{quote(key)}'


def _ask_member(member: str, key: str) -> str:
    return f',"{NAMES_OF_MEMBERS}":{{"{member}":{quote(key)}}}'

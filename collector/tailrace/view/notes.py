"""Notes: a person marks a range with a text, which stays with the store (`store.notes`)."""

from __future__ import annotations

from tailrace.clock import Clock
from tailrace.errors import UnknownError
from tailrace.store.notes import Note
from tailrace.view import wire
from tailrace.view.answering import cut
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import NewNote, OfNothing, OldNote


def notes(turn: DeskTurn, _: OfNothing) -> wire.NoteList:
    kept = turn.shelves[0].notes
    found = kept.list()
    return wire.NoteList(
        version=turn.snapshot().version,
        notes=[_facts(note) for note in found.notes],
        refused=kept.refused,
        unreadable=found.unreadable,
    )


def add(turn: DeskTurn, asked: NewNote) -> wire.NoteList:
    shelf = turn.shelves[0]
    shelf.notes.add(_note(asked, shelf.clock))
    return notes(turn, OfNothing())


def remove(turn: DeskTurn, asked: OldNote) -> wire.NoteList:
    if not turn.shelves[0].notes.remove(asked.id):
        raise UnknownError(f"there is no note {asked.id!r}")
    return notes(turn, OfNothing())


def _note(asked: NewNote, clock: Clock) -> Note:
    return Note(
        made=clock.wall_ns(),
        from_=min(asked.from_, asked.to),
        to=max(asked.from_, asked.to),
        text=asked.text,
        source=asked.source,
        session=asked.session,
        stream=asked.stream,
    )


def _facts(note: Note) -> wire.NoteFacts:
    return wire.NoteFacts(
        id=note.id,
        made=str(note.made),
        from_=str(note.from_),
        to=str(note.to),
        text=cut(note.text),
        source=cut(note.source),
        session=cut(note.session),
        stream=cut(note.stream),
    )

"""Define the loops that move data from the sources to the table. Each loop is a generator of steps, in a module of its
own."""

from __future__ import annotations

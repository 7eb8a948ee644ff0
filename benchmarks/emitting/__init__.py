"""Measure the cost of a call to the program that emits: the cases, and how their calls are timed.

Nothing here imports more than the standard library and, within a case, the library that it measures. So a case runs in
any environment.
"""

from __future__ import annotations

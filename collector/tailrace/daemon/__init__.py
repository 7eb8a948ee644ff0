"""Run the collector as a process that receives from its sources, writes to the spool, decodes, and commits rows."""

from __future__ import annotations

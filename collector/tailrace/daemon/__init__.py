"""Run the collector as a process that receives from its sources, writes to the spool, decodes, and commits rows to the
table.
"""

from __future__ import annotations

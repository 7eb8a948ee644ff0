"""Define the data types that all stages share.

This package imports nothing else from Tailrace except errors, clock and units.
"""

from __future__ import annotations

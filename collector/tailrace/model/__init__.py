"""Define the data types that all stages share. This package imports only errors, clock and units from Tailrace."""

from __future__ import annotations

"""The data types that all stages share. Imports only errors, clock and units from Tailrace."""

from __future__ import annotations

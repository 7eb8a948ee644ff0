"""The rows of the table, as all stages between the decoder and the file share them. Imports only `model` from Tailrace."""

from __future__ import annotations

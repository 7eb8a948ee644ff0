"""The rows of the table, as all stages between the decoder and the file share them. Imports only `model` and `kernels` from Tailrace,
and pyarrow only where no kernel runs: commands that never write a row import this, too."""

from __future__ import annotations

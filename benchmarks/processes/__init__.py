"""Start, feed and end the processes that are measured, and measure their usage."""

from __future__ import annotations

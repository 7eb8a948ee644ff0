"""The protocol of systemd between a service and its service manager."""

from __future__ import annotations

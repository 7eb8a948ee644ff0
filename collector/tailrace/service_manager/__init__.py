"""Communicate with the service manager (systemd), which starts, watches and restarts the daemon."""

from __future__ import annotations

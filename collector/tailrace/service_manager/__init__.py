"""Talk to the service manager in systemd's protocol."""

from __future__ import annotations

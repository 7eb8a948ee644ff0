"""What a service manager (systemd) and a service say to each other, in systemd's protocol."""

from __future__ import annotations

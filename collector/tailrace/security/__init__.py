"""Who may talk to a listener, and who it proves to be: certificates, tokens, networks."""

from __future__ import annotations

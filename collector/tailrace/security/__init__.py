"""Control who may use a listener, by certificates, tokens and networks."""

from __future__ import annotations

"""The soak: all formats, real clients and all faults at once, for minutes or hours, beside an independent journal."""

"""Run a collector for the duration of one program, and certify the stored events."""

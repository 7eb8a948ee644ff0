"""Run a collector for the duration of one program, and certify which events are stored and which are missing."""

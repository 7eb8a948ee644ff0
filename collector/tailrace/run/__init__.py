"""Run a collector for the length of one program, and certify what it collected."""

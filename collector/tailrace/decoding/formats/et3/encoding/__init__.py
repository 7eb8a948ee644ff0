"""The parts of the encoder: the ways to write a line."""

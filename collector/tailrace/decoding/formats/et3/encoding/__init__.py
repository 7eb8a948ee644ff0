"""The parts of the encoder: a line and its spelling."""

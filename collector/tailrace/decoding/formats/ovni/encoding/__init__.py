"""The parts of the encoder: events as bytes, what a repair closes, and what it adds to metadata."""

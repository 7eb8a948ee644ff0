"""The parts of the encoder: how releases spell a record."""

"""A collector for the length of one program, and the certificate of what it collected."""

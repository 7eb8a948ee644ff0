"""Build a release, and check it before it is published: docs/release.md."""

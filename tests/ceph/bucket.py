"""Run a real daemon whose table is in a bucket. Its spool is a local directory."""

from __future__ import annotations

import os

from tests import program, toml
from tests.system.collector import Collector


class BucketCollector(Collector):
    """A collector on a bucket.

    `store` is the spool's directory, where the daemon writes the ports on which it listens.
    """

    def __init__(self, directory, url, options, *, more="", **keywords):
        spool = toml.section("spool", path=directory / "store")
        super().__init__(directory, more=spool + more, environ=options, **keywords)
        self.url = url

    def command(self):
        return [*program.COMMAND, "serve", "--config", self.config, "--store", self.url]

    def cli(self, command, *arguments):
        """Run a command on the bucket. Return what it printed."""
        done = program.run(
            [*program.COMMAND, command, "--store", self.url, *arguments],
            capture_output=True, text=True, timeout=300, check=False, env=os.environ | self.environ,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

"""Let the exit of a program wait a minute for the collector, instead of a second. Python imports this module when it
starts.

A busy machine may need more than a second, and the result of a test must not depend on this. A test's program decides
when it imports the client, because exit functions run in the reverse order of their registration. Therefore this module
changes the client's times while the client is imported.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder


class Patience(MetaPathFinder):
    """An import hook that finds the client's module `sender`, once, and changes its times after the module was
    executed."""

    def find_spec(self, name, path, target=None):
        if name != "tailrace_client._sender":
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        execute = found.loader.exec_module

        def exec_module(module):
            execute(module)
            module.EXIT_SECONDS, module._SENDING_SECONDS = 60.0, 30.0

        found.loader.exec_module = exec_module
        return found


sys.meta_path.insert(0, Patience())

"""Let the exit of a program wait a minute for the collector, and not a second. Python imports this module at its start.

A busy machine may need more than a second, and a test must not depend on that. The program decides when it imports the
client, because exit functions run in the reverse order of their registration. So the module changes the client's
times during the import.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder


class Patience(MetaPathFinder):
    """Finds the client's sender, once, and changes its times when it has been executed."""

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

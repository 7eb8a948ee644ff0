"""Package of the collector for Spack 1.0 or newer: deploy/README.md has the commands.

It installs the offline archive of a release, because Spack has no packages for several of the libraries that the
collector needs.
"""

import os

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Tailrace(Package):
    """A collector that takes in execution traces and knows exactly which events are missing, and why."""

    # Spack takes the archive from the directory in which it runs, or from a mirror of the site.
    manual_download = True
    url = f"file://{os.getcwd()}/tailrace-0.1.0-offline-cp311-linux_x86_64.tar"

    license("Apache-2.0")

    # Filled in for a release; `make release-check` compares it with dist/SHA256SUMS.
    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    requires("platform=linux", "target=x86_64:", msg="the archive has wheels for x86_64 on Linux")
    depends_on("python@3.11", type=("build", "run"))

    sanity_check_is_file = [os.path.join("bin", "tailrace")]

    def install(self, spec, prefix):
        os.environ["PYTHON"] = spec["python"].command.path
        Executable("sh")("install.sh", str(prefix))

    def setup_run_environment(self, env):
        env.set("TAILRACE_KERNELS", "require")

    def test_demo(self):
        """Send all formats to a collector; compare the losses that it finds with those injected"""
        tailrace = Executable(self.prefix.bin.tailrace)
        tailrace("demo", "--json", "--store", os.path.join(self.test_suite.stage, "demo"))

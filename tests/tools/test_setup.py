"""Facts about tools/setup.sh, with a pretended dpkg, apt and sudo: what is fetched, and what is said."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NEEDED = ("bash", "cat", "dirname", "env", "grep", "mktemp", "rm", "sed", "uname")


class Setup(unittest.TestCase):
    """A machine is a folder of commands, the only ones the script sees; apt writes down how it is called."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.bin = Path(self.folder.name)
        for name in NEEDED:
            (self.bin / name).symlink_to(shutil.which(name))
        self.calls = self.bin / "calls"
        self.command("id", "echo 0")
        self.command("apt-get", f'echo "apt-get $*" >> {self.calls}')
        self.command("update-alternatives", "exit 2")
        self.installed("g++", "cmake", "ninja-build", "make", "pkg-config")

    def tearDown(self):
        self.folder.cleanup()

    def command(self, name, body):
        (self.bin / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def installed(self, *packages):
        lines = "\n".join(f"  {name}) echo '{name} installed' ;;" for name in packages)
        self.command("dpkg-query", f'for name in "$@"; do case "$name" in\n{lines}\nesac; done')

    def run_setup(self, *groups, **environment):
        done = subprocess.run(
            [str(ROOT / "tools" / "setup.sh"), *groups],
            env={"PATH": str(self.bin), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        calls = self.calls.read_text(encoding="utf-8") if self.calls.exists() else ""
        return done.returncode, done.stdout, calls

    def test_is_silent_and_fetches_nothing_where_nothing_is_missing(self):
        self.assertEqual(self.run_setup("build"), (0, "", ""))

    def test_fetches_only_what_is_missing(self):
        self.installed("g++", "cmake", "libtorch-dev")
        status, out, calls = self.run_setup("build", "torch")
        self.assertEqual(status, 0)
        self.assertEqual(
            out,
            "setup: installing 5 missing Debian packages: ninja-build make pkg-config "
            "libgloo-dev libopenblas0-openmp\n",
        )
        self.assertEqual(
            calls,
            "apt-get -qq -o DPkg::Lock::Timeout=300 update\n"
            "apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "
            "ninja-build make pkg-config libgloo-dev libopenblas0-openmp\n",
        )

    def test_a_package_that_was_removed_is_missing(self):
        self.command("dpkg-query", "echo 'libtorch-dev installed\nlibopenblas0-openmp config-files'")
        self.assertIn("install -y --no-install-recommends libgloo-dev libopenblas0-openmp\n", self.run_setup("torch")[2])

    def test_a_libtorch_elsewhere_leaves_the_torch_group_out(self):
        self.assertEqual(self.run_setup("build", "torch", TORCH="/opt/libtorch"), (0, "", ""))
        self.assertEqual(self.run_setup("torch", TORCH="/opt/libtorch"), (0, "", ""))

    def test_setup_no_leaves_everything_out(self):
        self.assertEqual(self.run_setup("libs", "torch", SETUP="no"), (0, "", ""))

    def test_asks_sudo_where_it_is_not_root(self):
        self.command("id", "echo 1000")
        self.command("sudo", f'echo "sudo $*" >> {self.calls}')
        status, _, calls = self.run_setup("torch")
        self.assertEqual(status, 0)
        self.assertIn("sudo env DEBIAN_FRONTEND=noninteractive apt-get", calls)

    def test_says_what_to_do_with_neither_root_nor_sudo(self):
        self.command("id", "echo 1000")
        status, out, calls = self.run_setup("torch")
        self.assertEqual((status, calls), (1, ""))
        self.assertEqual(
            out,
            "setup: these packages are missing, and installing them takes root or sudo: "
            "libtorch-dev libgloo-dev libopenblas0-openmp\n"
            "setup: as root: apt-get install --no-install-recommends libtorch-dev libgloo-dev libopenblas0-openmp\n"
            "setup: (or go on without them: make SETUP=no)\n",
        )

    def test_goes_on_elsewhere_than_on_debian(self):
        (self.bin / "apt-get").unlink()
        status, out, _ = self.run_setup("torch")
        self.assertEqual(status, 0)
        self.assertEqual(
            out,
            "setup: not a Debian system, so nothing is installed; needed are, by Debian's names: "
            "libtorch-dev libgloo-dev libopenblas0-openmp\n"
            "setup: (going on with what there is; a LibTorch elsewhere is named with make TORCH=/path)\n",
        )

    def test_shows_why_apt_failed(self):
        self.command("apt-get", '[[ "$*" == *update ]] || { echo "E: no such package"; exit 100; }')
        status, out, _ = self.run_setup("torch")
        self.assertEqual(status, 1)
        self.assertIn("E: no such package\nsetup: apt-get could not install them (above)", out)

    def test_goes_on_where_the_package_lists_cannot_be_had(self):
        self.command("apt-get", f'echo "apt-get $*" >> {self.calls}; [[ "$*" != *update ]]')
        status, out, calls = self.run_setup("torch")
        self.assertEqual(status, 0)
        self.assertIn("setup: apt-get update failed; trying with the package lists there are\n", out)
        self.assertIn("libtorch-dev libgloo-dev libopenblas0-openmp\n", calls)

    def test_names_a_slow_blas_that_is_the_default(self):
        self.command("update-alternatives", "echo 'Value: /usr/lib/openblas-pthread/libblas.so.3'")
        self.assertIn(
            "default BLAS is /usr/lib/openblas-pthread/libblas.so.3", self.run_setup("torch")[1]
        )

    def test_an_unknown_group_is_an_error(self):
        status, out, _ = self.run_setup("bild")
        self.assertEqual(status, 2)
        self.assertIn("no group 'bild'", out)
        self.assertIn("there are: build libs torch tests checks", out)


if __name__ == "__main__":
    unittest.main()

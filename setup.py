"""Puts the shared library and the pocket model into the package. What can be said in pyproject.toml is said there."""
import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
VERSION = re.search(r'#define DGEMMA_VERSION "(.*)"', (ROOT / "include/dgemma.h").read_text())[1]
LIBRARY = f"build/release/libdgemma.so.{VERSION.split('.')[0]}"
MODEL = ("models/pocket/pocket.gguf", "models/pocket/mmproj-pocket.gguf")
WORK = "build/python"


def make(*goals, **more):
    """What `make wheel NAME=VALUE` was told holds here as well; its jobs are its own."""
    told = os.environ.get("MAKEFLAGS", "").partition(" -- ")[2]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    if told:
        environment["MAKEFLAGS"] = " -- " + told
    return subprocess.run(["make", "--no-print-directory", *goals], cwd=ROOT, check=True, env=environment, **more)


def full_version():
    """0.2.0, or 0.2.0+cuda13: two wheels of one version are not the same."""
    label = make("wheel-label", stdout=subprocess.PIPE, text=True).stdout.strip()
    return f"{VERSION}+{label}" if label else VERSION


class BuildPackage(build_py):
    def run(self):
        super().run()
        if self.editable_mode:  # the package finds both in the source tree
            return
        make(LIBRARY)
        for file in (LIBRARY, *MODEL):
            shutil.copy2(ROOT / file, Path(self.build_lib) / "dgemma" / Path(file).name)


class BuildWheel(bdist_wheel):
    def get_tag(self):
        """One for every Python of this kind of machine."""
        return ("py3", "none", super().get_tag()[2])


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


os.makedirs(ROOT / WORK, exist_ok=True)
setup(
    version=full_version(),
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel},
    options={"build": {"build_base": WORK}, "egg_info": {"egg_base": WORK}},
)

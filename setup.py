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


def make_library():
    """What `make wheel NAME=VALUE` was told holds here as well; its jobs are its own."""
    told = os.environ.pop("MAKEFLAGS", "").partition(" -- ")[2]
    for name in ("MFLAGS", "MAKELEVEL"):
        os.environ.pop(name, None)
    if told:
        os.environ["MAKEFLAGS"] = " -- " + told
    subprocess.run(["make", LIBRARY], cwd=ROOT, check=True)


class BuildPackage(build_py):
    def run(self):
        super().run()
        if self.editable_mode:  # the package finds both in the source tree
            return
        make_library()
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
    version=VERSION,
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildPackage, "bdist_wheel": BuildWheel},
    options={"build": {"build_base": WORK}, "egg_info": {"egg_base": WORK}},
)

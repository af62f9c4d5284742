"""The version of the package: that of the repository."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("ce-kernels")
except PackageNotFoundError:  # not installed: development of ce itself
    __version__ = "0+unknown"

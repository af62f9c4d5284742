"""The settings of :func:`ce.torch.configure`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ce import _c
from ce.torch import _native

Policy = Literal["default", "tune", "lookup", "frozen", "background"]
Cpu = Literal["torch", "host"]


@dataclass(frozen=True)
class Settings:
    """Options of contexts, and the destination of CPU tensors. See :func:`configure`."""

    policy: Policy = "default"
    database: str = ""
    tuning_seconds: float | None = None
    scratch_bytes: int = 0
    capture_bytes: int = 8 << 20
    nondeterministic_products: bool = False
    cpu: Cpu = "torch"
    rank_patience: float = 600.0
    compare_ranks: bool = False


def _of_environment() -> Settings:
    cpu = os.environ.get("CE_TORCH_CPU", "torch")
    if cpu not in ("torch", "host"):
        raise ValueError(f"ce: CE_TORCH_CPU is {cpu!r}; expected 'torch' or 'host'")
    return Settings(cpu=cpu)  # type: ignore[arg-type]


current = _of_environment()
on_host = current.cpu == "host"


def configure(
    *,
    policy: Policy | None = None,
    database: str | os.PathLike[str] | None = None,
    tuning_seconds: float | None = None,
    scratch_bytes: int | None = None,
    capture_bytes: int | None = None,
    nondeterministic_products: bool | None = None,
    cpu: Cpu | None = None,
    rank_patience: float | None = None,
    compare_ranks: bool | None = None,
) -> Settings:
    """Sets how kernels are chosen from the next call on, in this process.

    Arguments that are not given keep their values. Calls that were captured into CUDA graphs keep their kernels.

    Args:
        policy: what to do for a problem that the database has no winner for: ``"tune"`` it now, ``"lookup"``: take a
            fallback, ``"frozen"``: raise :class:`NotTuned`, ``"background"``: take a fallback while a thread tunes.
            ``"default"``: the environment variable CE_POLICY, else ``"tune"``.
        database: the file of the tuning database; empty: CE_DB, else ``~/.local/share/ce/ce.db``.
        tuning_seconds: limit for tuning a problem, and for waiting for another process that tunes it; 0: no bound.
            Unset: 2.
        scratch_bytes: device memory that tuning may use, from torch's allocator; 0: a quarter of the free memory, at
            most 2 GiB.
        capture_bytes: device memory reserved for calls that are captured into CUDA graphs.
        nondeterministic_products: allows products of linear layers to add up partial sums in any order, if that is
            faster; results then differ in their last bits between calls. Also CE_NONDETERMINISTIC_PRODUCTS=1.
        cpu: ``"torch"``: CPU tensors run in torch; ``"host"``: on the host device of ``ce``, which runs the kernels of
            a GPU on the CPU: exact and slow, for tests. Also CE_TORCH_CPU.
        rank_patience: seconds, above 0, that a kernel which exchanges with other ranks waits for them before it gives
            up. For groups of ranks that have not exchanged yet. It must be equal on every rank.
        compare_ranks: ranks that share the classes compare every call, not only the first of its kind, so that a call
            that differs is an error on every rank. For debugging: it waits for the GPU. It must be equal on every rank.

    Returns:
        The settings that were in force before.

    Raises:
        ValueError: an invalid value; the settings stay as they were.
        TypeError: a value of another type.
    """
    global current, on_host
    if database is not None and not isinstance(database, (str, os.PathLike)):
        raise TypeError(f"ce.configure: database is {database!r}; expected a path")
    given = {
        "policy": policy,
        "database": None if database is None else os.fspath(Path(database)) if database else "",
        "tuning_seconds": tuning_seconds,
        "scratch_bytes": scratch_bytes,
        "capture_bytes": capture_bytes,
        "nondeterministic_products": nondeterministic_products,
        "cpu": cpu,
        "rank_patience": rank_patience,
        "compare_ranks": compare_ranks,
    }
    before = current
    _apply(Settings(**{**vars(before), **{name: value for name, value in given.items() if value is not None}}))
    return before


def restore(settings: Settings) -> None:
    """Restores the settings that :func:`configure` returned.

    Raises:
        TypeError: another object.
    """
    if not isinstance(settings, Settings):
        raise TypeError(f"ce.restore: settings is {settings!r}; expected what configure() returned")
    _apply(settings)


def _apply(settings: Settings) -> None:
    global current, on_host
    if settings.policy not in tuple(_c.POLICIES):
        raise ValueError(f"ce.configure: policy is {settings.policy!r}; expected one of {', '.join(_c.POLICIES)}")
    if settings.cpu not in ("torch", "host"):
        raise ValueError(f"ce.configure: cpu is {settings.cpu!r}; expected 'torch' or 'host'")
    seconds = settings.tuning_seconds
    for name in ("tuning_seconds", "rank_patience"):
        value = getattr(settings, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise TypeError(f"ce.configure: {name} is {value!r}; expected a number of seconds")
    if not isinstance(settings.compare_ranks, bool):
        raise TypeError(f"ce.configure: compare_ranks is {settings.compare_ranks!r}; expected True or False")
    if seconds is not None and not seconds >= 0:
        raise ValueError(f"ce.configure: tuning_seconds is {seconds!r}; expected 0 or more")
    for name in ("scratch_bytes", "capture_bytes"):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
            raise ValueError(f"ce.configure: {name} is {value!r}; expected a number of bytes, 0 to 2^63 - 1")
    if not isinstance(settings.nondeterministic_products, bool):
        raise ValueError(
            f"ce.configure: nondeterministic_products is {settings.nondeterministic_products!r}; expected True or False"
        )
    if not 0 < settings.rank_patience <= 1e9:
        raise ValueError(
            f"ce.configure: rank_patience is {settings.rank_patience!r}; expected seconds above 0, at most 1e9"
        )
    not_of_contexts = ("cpu", "rank_patience", "compare_ranks")
    made_with = {name: value for name, value in vars(settings).items() if name not in not_of_contexts}
    if made_with != {name: value for name, value in vars(current).items() if name not in not_of_contexts}:
        _native.configure(
            _c.ContextOptions(
                database=os.fsencode(settings.database),
                tuning_seconds=-1.0 if seconds is None else seconds,
                scratch_bytes=settings.scratch_bytes,
                capture_bytes=settings.capture_bytes,
                nondeterministic_products=settings.nondeterministic_products,
                policy=_c.POLICIES[settings.policy],
            )
        )
    current = settings
    on_host = settings.cpu == "host"

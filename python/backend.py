"""scikit-build-core, which asks for torch only where this Python has none: its headers are all that a build needs."""

from typing import Any, Optional

from scikit_build_core.build import *  # noqa: F403
from scikit_build_core.build import get_requires_for_build_wheel as _requires

import torch_include


def get_requires_for_build_wheel(config_settings: "Optional[dict[str, Any]]" = None) -> "list[str]":
    """What the build needs beyond pyproject.toml."""
    return [*_requires(config_settings), *([] if torch_include.find() else ["torch>=2.9"])]

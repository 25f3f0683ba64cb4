"""Numbers of steps on the command line, which may be written as 1e5."""

from __future__ import annotations

from typing import Annotated

import tyro

from nfdrl.errors import whole

Count = Annotated[
    int,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole("it", words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]

"""Private means of the vectors of users, and runs with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.torch.runs import WIDTH, made

# isort: split
from dpgrain.means import ClippedMean, Mean, Recentred, Shuffled
from dpgrain.papers import SoftCoreMean, Winsorized
from dpgrain.units import User


def means(rounds: int = 3) -> dict[str, Mean]:
    small: dict[str, Any] = {"epsilon": 1e5, "delta": 1e-6, "rounds": rounds, "n_users": 40}
    return {
        "recentred": Recentred(1.0, 2.0**-10, n_users=40, rounds=rounds),
        "winsorized": Winsorized.calibrate(**small, radius=0.5, bound=4.0, dimension=WIDTH),
        "soft core": SoftCoreMean.calibrate(**small, radius=0.5),
        "clipped": ClippedMean(1.0, 2.0**-10, 40, rounds, level="user"),
        "shuffled": Shuffled.calibrate(
            epsilon=50.0, delta=1e-6, n_users=40, rounds=rounds, dimension=WIDTH, interaction="full"
        ),
    }


PEOPLE = np.repeat(np.arange(40), np.tile([1, 2, 3, 4], 10))


def engine_of(mean: Any, unit: Any = None, vectors: Any = None, **options: Any) -> Any:
    none = dict.fromkeys(("n_users", "steps", "sampling_rate", "max_grad_norm", "noise_multiplier"))
    data = np.ones((len(PEOPLE), WIDTH)) if vectors is None else vectors
    given = {"users": PEOPLE, **none, **options}
    return made(data, User() if unit is None else unit, mean=mean, **given)

"""Charge a custom mechanism, audit it, and compose it with the library's."""

import math
import secrets
from dataclasses import dataclass

import numpy as np

import dpgrain as dg
from dpgrain.accounting import Event, Loss, Neighbours
from dpgrain.units import Level, Relation

CAP = 10  # the most visits of a user that count


@dataclass(frozen=True)
class Staircase(Event):
    """The discrete staircase mechanism (Geng and Viswanath 2014) on a total of users' capped visits."""

    epsilon0: float

    @property
    def level(self) -> Level:
        return "user"

    def cost(self, neighbours: Neighbours) -> Loss:
        # A user's visits are 0 to CAP: whether they are removed or exchanged, the total moves by CAP.
        return Loss(pure=self.epsilon0 * neighbours.steps("user", "replace"))


def staircase(epsilon: float, random: secrets.SystemRandom, height: int) -> int:
    """Noise with P(i + CAP) = e^(−ε)·P(i), in blocks of CAP positions, with a higher first part."""
    low = math.exp(-epsilon)
    while True:
        block = int(math.log(1.0 - random.random()) / -epsilon)
        first = random.random() * (height + low * (CAP - height)) < height
        place = random.randrange(height) if first else random.randrange(height, CAP)
        noise = block * CAP + place
        sign = random.choice((-1, 1))
        if noise or sign > 0:
            return sign * noise


def best_height(epsilon: float) -> int:
    """The height with the least variance, from public numbers."""
    return min(range(1, CAP + 1), key=lambda height: variance(epsilon, height))


def variance(epsilon: float, height: int) -> float:
    places = np.arange(int(60 * CAP / epsilon) + 60 * CAP)
    law = np.exp(-epsilon * (places // CAP + (places % CAP >= height)))
    return float(2 * (law * places**2).sum() / (2 * law.sum() - 1))


@dataclass(frozen=True)
class Total:
    """The mechanism as ``dg.audit`` runs it; ``noise`` is the share of the noise that it adds."""

    guarantee: dg.Guarantee
    epsilon: float
    noise: float = 1.0

    def neighbours(self, units: int, relation: Relation) -> tuple[int, int]:  # noqa: ARG002
        # Removed or exchanged, a user's visits move the total by CAP at most.
        return 0, units * CAP

    def draw(self, total: int, count: int) -> list[int]:
        epsilon, random = self.epsilon / self.noise, secrets.SystemRandom()
        height = best_height(epsilon)
        return [total + staircase(epsilon, random, height) for _ in range(count)]


def plot(path: str) -> None:
    """The rms error against ε, compared with the Laplace noise of ``dg.sum``."""
    from matplotlib import pyplot as plt

    epsilons = np.geomspace(0.3, 8, 25)
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    ours = [math.sqrt(2) * CAP / epsilon for epsilon in epsilons]
    own = [math.sqrt(variance(epsilon, best_height(epsilon))) for epsilon in epsilons]
    axes.loglog(epsilons, ours, label="Laplace noise, as dg.sum draws it")
    axes.loglog(epsilons, own, label="staircase noise")
    axes.set(xlabel="ε", ylabel="rms error of a total", title=f"each user counts up to {CAP}")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    visits = np.random.default_rng(0).poisson(3, 4000)  # one number for each of 4,000 people
    epsilon, delta = 2.0, 0.0
    event = Staircase(epsilon)
    promise = dg.Guarantee("user", "", "zero_out", delta, event)
    with dg.budget(3.0) as budget:
        budget.charge(promise)  # before anything is read
        total = int(np.minimum(visits, CAP).sum())
        noise = staircase(epsilon, secrets.SystemRandom(), best_height(epsilon))
        print("total:", total + noise)
        print(budget)
    print(promise)
    print(dg.audit(Total(promise, epsilon), units=[1], draws=40_000))
    sd, ours = math.sqrt(variance(epsilon, best_height(epsilon))), math.sqrt(2) * CAP / epsilon
    print(f"rms error {sd:.2f}; Laplace noise of the same promise {ours:.2f}")


if __name__ == "__main__":
    main()

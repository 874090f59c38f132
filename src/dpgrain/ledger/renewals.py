"""The total of a promise and all promises that it renews: what one unit is promised altogether."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dpgrain._formatting import powers, rounded_up
from dpgrain.accounting import Loss
from dpgrain.ledger.lasting_promise import LastingPromise
from dpgrain.ledger.price_units import Units
from dpgrain.publishing.caps import Caps
from dpgrain.publishing.prices import Price
from dpgrain.publishing.risk import Risk, loss_risk

#: Condition of every total of renewed promises. Proof: docs/theory, "Ledgers".
CONDITION = "if no renewal's budget was chosen from results"


@dataclass(frozen=True, eq=False)
class RenewedPromise:
    """A promise with all that it renews, by line, latest first; ``spent`` is of the fullest account.

    The caps of every promise count, because a renewal leaves earlier charges in force. They add only
    if no renewal's caps were chosen from results. What was spent is composed as if all releases had
    been fixed in advance.
    """

    promises: Mapping[int, LastingPromise]
    spent: Mapping[int, Units]
    private: bool = True

    @property
    def renewed(self) -> list[int]:
        """Lines of the renewed promises."""
        return sorted(self.promises)[:-1]

    @property
    def delta(self) -> float:
        """Sum of the δ of all promises."""
        return sum(one.delta for one in self.promises.values())

    @property
    def epsilon(self) -> float:
        """The ε of all promises together, at :attr:`delta`."""
        latest, *earlier = self.promises.values()
        return latest.together(*earlier).epsilon(self.delta) if earlier else latest.epsilon

    @property
    def spent_epsilon(self) -> float:
        """The ε of all releases so far, at :attr:`delta`."""
        return min(self._used.epsilon(self.delta), self.epsilon)

    @property
    def _used(self) -> Caps:
        """The prices of all releases so far, with all plans."""
        each = [(one, self.spent[line].spent(one.caps)) for line, one in self.promises.items()]
        price = sum((spent for _, spent in each), Price())
        return Caps(price, sum((one.whole.planned for one, _ in each), Loss()))

    def risk(self, *, so_far: bool = False, false_alarms: float, prior: float) -> Risk:
        """Return the risk of one promised unit from all releases, or from those so far."""
        latest, *earlier = self.promises.values()
        caps = self._used if so_far else latest.together(*earlier)
        risk = loss_risk(
            caps.loss,
            unit=latest.unit,
            units=1,
            relation=latest.relation,
            false_alarms=false_alarms,
            prior=prior,
            private=self.private,
            exact=False,
        )
        return replace(risk, window="" if latest.window is None else str(latest.window))

    @property
    def renewal_text(self) -> str:
        """Description of the total; empty if the promise renews none."""
        if not self.renewed:
            return ""
        return (
            f"renews line {' and '.join(map(str, self.renewed))}; together they promise "
            f"ε = {rounded_up(self.epsilon)} at δ = {powers(self.delta)}, {CONDITION}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the total as JSON values; the best guesses start from even odds."""
        values: dict[str, Any] = {
            "renews": self.renewed,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "spent_epsilon": self.spent_epsilon,
        }
        for name, so_far in (("best_guess", False), ("best_guess_so_far", True)):
            values[name] = self.risk(so_far=so_far, false_alarms=0.05, prior=0.5).guess
        return values

"""The entry of a ledger for the public registry passes its schema and states what was promised."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.ledger import cases

import dpgrain as dg
from dpgrain.accounting import Compose, Contribution, Gaussian, Laplace, Parallel
from dpgrain.ledger import LastingPromise
from dpgrain.ledger.deployment_registry import registry_entry, registry_yaml
from dpgrain.scope.partitions import Partition, Rule
from dpgrain.shuffle import VectorSum

SCHEMA: Any = yaml.safe_load((Path(__file__).parent / "registry_schema.yaml").read_text("utf-8"))
HOSTILE = (
    'visits"\nstatus: Approved',
    "# nobody",
    "a: b #c",
    "- x",
    "*alias &anchor !!python/object:os.system {a: [b]} %TAG @ `",
    "|-\n  text",
    "  indented\nless",
    "a\n\nb\n",
    "a\n# b\r\n\tc",
    "no",
    "1e3",
    " ends with space ",
    "\u00fcn\u00efc\u00f6de \u2603 \U0001f600 \u202e\u2028\u0085\ufeff\x07\x1b\\",
)


def _checked(ledger: dg.Ledger, **more: str) -> dict[str, Any]:
    """Return the deployment of an entry if it passes the schema and equals the plain entry."""
    read: dict[str, Any] = yaml.safe_load(registry_yaml(ledger, **more))
    checker = jsonschema.Draft7Validator.FORMAT_CHECKER
    jsonschema.Draft7Validator(SCHEMA, format_checker=checker).validate(read)
    assert read == registry_entry(ledger, **more)
    deployment: dict[str, Any] = read["deployment"]
    return deployment


def _names(schema: Any) -> Iterator[str]:
    for name, one in schema.get("properties", {}).items():
        yield name
        yield from _names(one.get("items", one))


def test_an_entry_has_unit_parameters_and_mechanisms(tmp_path: Path) -> None:
    ledger = cases.made(tmp_path / "visits.ledger")
    ledger.charge(cases.of_users(), cases.of_users(50.0))
    entry = _checked(ledger, decided_by="the office")
    loss = entry["privacy_loss"]
    assert loss["privacy_unit"] == "User-level"
    assert (
        "by adding or removing all of one user's records (the user remains enrolled)."
        in loss["privacy_unit_details"]
    )
    assert loss["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert entry["dp_variant"]["variant_name"] == "Approximate DP"
    assert entry["deployment_model"]["model_name"] == "Central"
    assert entry["deployment_model"]["release_type"] == "Many releases"
    assert "Events charged: Gaussian." in entry["implementation"]["mechanisms"]
    basic = entry["basic"]
    assert basic["publication_date"] == ledger.entries[-1].at[:10]
    assert basic["data_curators"][0]["data_curator_name"] == "the office"


def test_an_entry_without_releases_passes_the_schema(tmp_path: Path) -> None:
    entry = _checked(cases.made(tmp_path / "visits.ledger"))
    assert "model_name" not in entry["deployment_model"]
    assert "No release charged yet." in entry["implementation"]["mechanisms"]


def test_values_and_comments_name_every_field_in_order(tmp_path: Path) -> None:
    text = registry_yaml(cases.made(tmp_path / "visits.ledger"))
    written = re.findall(r"^ *(?:# )?(\w+):", text, re.MULTILINE)
    # The details of two choices, and ρ, which no promise of a ledger has.
    left_out = {"data_source_type_details", "access_type_details", "rho"}
    assert written == [name for name in _names(SCHEMA) if name not in left_out]


def test_parameters_are_rounded_up(tmp_path: Path) -> None:
    promise = LastingPromise.of(dg.User(), 0.123456, 1.23456e-7)
    entry = _checked(cases.made(tmp_path / "visits.ledger", promise))
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.1235, "delta": 1.235e-7}


def test_a_renewed_promise_states_the_sum(tmp_path: Path) -> None:
    ledger = cases.made(tmp_path / "visits.ledger")
    line = ledger.renew(1, cases.USERS.renewed(1.0, 1e-6)).number
    total = ledger.total(line)
    parameters = _checked(ledger)["privacy_loss"]["privacy_parameters"]
    assert parameters["delta"] == total.delta == 2e-6
    assert 1.0 < total.epsilon <= parameters["epsilon"] < total.epsilon + 1e-3


def test_all_promises_are_in_the_details(tmp_path: Path) -> None:
    window = LastingPromise.of(
        dg.User(), 9.0, relation="replace", window=dg.ledger.AnyDays(30, "day")
    )
    entry = _checked(cases.made(tmp_path / "visits.ledger", cases.OF_DAYS, window))
    loss = entry["privacy_loss"]
    assert str(cases.DAYS) in loss["privacy_unit"]
    assert f"differ in {window.window} by replacing all of one" in loss["privacy_unit_details"]
    assert "ε = 9, δ = 0" in loss["privacy_parameters_details"]


def test_a_pure_promise_has_no_delta(tmp_path: Path) -> None:
    entry = _checked(cases.made(tmp_path / "visits.ledger", LastingPromise.of(dg.Record(), 2.0)))
    assert entry["dp_variant"]["variant_name"] == "Pure DP"
    assert entry["privacy_loss"]["privacy_parameters"] == {"epsilon": 2.0}


def test_a_seeded_release_leaves_no_parameters(tmp_path: Path) -> None:
    ledger = cases.made(tmp_path / "visits.ledger")
    ledger.charge(cases.of_users(private=False))
    loss = _checked(ledger)["privacy_loss"]
    assert "privacy_parameters" not in loss
    assert "NOT PRIVATE" in loss["privacy_parameters_details"]


def test_rows_as_given_are_stated(tmp_path: Path) -> None:
    ledger = cases.made(tmp_path / "visits.ledger")
    ledger.charge(cases.of_users(provenance="as given"))
    assert (
        "from the caller (unverified)" in _checked(ledger)["privacy_loss"]["privacy_unit_details"]
    )


def test_the_model_follows_from_the_events(tmp_path: Path) -> None:
    shuffled = VectorSum(n_users=10**5, dim=3, l2_bound=1.0, epsilon=0.1, delta=1e-9).guarantee
    ledger = cases.made(tmp_path / "visits.ledger", LastingPromise.of(dg.User(), 9.0, 1e-6))
    ledger.charge(shuffled)
    assert _checked(ledger)["deployment_model"]["model_name"] == "Shuffle"
    ledger.charge(cases.of_users())
    assert _checked(ledger)["deployment_model"]["model_name"] == "Varies"


def test_composed_events_are_listed_once_each(tmp_path: Path) -> None:
    user = Contribution(block="user")
    inner = Parallel((Gaussian(90.0, user), Laplace(90.0, replace(user, norm="l1"))))
    event = Compose((Gaussian(80.0, user), inner))
    ledger = cases.made(tmp_path / "visits.ledger", LastingPromise.of(dg.User(), 9.0, 1e-6, pure=1))
    ledger.charge(replace(cases.of_users(), event=event))
    assert "charged: Gaussian, Laplace." in _checked(ledger)["implementation"]["mechanisms"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_one_text(name: str, tmp_path: Path) -> None:
    column = Partition((Rule(name),))
    promise = LastingPromise.of(dg.Element(column), 1.0, 1e-6)
    ledger = dg.Ledger.create(tmp_path / "visits.ledger", name=name, promises=[promise])
    entry = _checked(ledger, decided_by=name)
    assert entry["basic"]["name"] == name
    assert entry["basic"]["data_curators"][0]["data_curator_name"] == name
    assert str(column) in entry["privacy_loss"]["privacy_unit"]


def test_entry_has_no_path_hash_region_or_public_fact(tmp_path: Path) -> None:
    ledger = cases.made(tmp_path / "canary.ledger", user="canary_user")
    region = cases.on(country="canary_country")
    release = cases.of_users(
        scope=region, public=(dg.Fact("stated", ("canary_fact",)),), user="canary_user"
    )
    ledger.charge(release, mark="canary_mark")
    text = registry_yaml(ledger)
    assert "canary" not in text
    assert str(tmp_path) not in text
    assert not re.search(r"[0-9a-f]{16}", text)

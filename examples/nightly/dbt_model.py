"""A Python model of dbt-duckdb: counts of pages of one day, private for each person's day."""

from datetime import date, timedelta
from pathlib import Path

import dpgrain as dg


def model(dbt, session):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Publish what another model made; the ledger charges the day before a row is read."""
    dbt.config(materialized="incremental")
    folder = Path(dbt.config.get("folder"))
    day = dbt.config.get("day") or str(date.today() - timedelta(days=1))
    visits = dg.read(dbt.ref("visits"), user="person", rows="as given")
    with dg.Ledger(folder / "visits.ledger"):
        made = dg.releases(
            folder / "releases_of_dbt.toml", visits, where={"day": day}, folder=folder / day
        )
    return made["pages"].to_arrow().append_column("day", [[day] * len(made["pages"])])

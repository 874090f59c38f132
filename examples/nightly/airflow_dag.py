"""A task of Airflow that publishes the day before."""

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

COMMAND = (
    "cd /srv/visits && dpgrain run releases.toml --where day={{ ds }} --folder {{ ds }} "
    "--ledger visits.ledger"
)

with DAG("visits", schedule="15 3 * * *", start_date=datetime(2026, 1, 1), catchup=False):
    BashOperator(
        task_id="publish",
        bash_command=COMMAND,
        # Exit code 3: published before, or no budget is left. Neither is mended by trying again.
        skip_on_exit_code=3,
        retries=3,
        retry_delay=timedelta(minutes=10),
    )

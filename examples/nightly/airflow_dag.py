"""A task of Airflow 2 or 3 that publishes the day before."""

from datetime import datetime, timedelta

from airflow import DAG

# In Airflow 2: from airflow.operators.bash import BashOperator
from airflow.providers.standard.operators.bash import BashOperator

# The day before the run. `ds` is that day in Airflow 2, and the day of the run in Airflow 3.
DAY = "{{ macros.ds_add(data_interval_end | ds, -1) }}"
COMMAND = (
    f"cd /srv/visits && dpgrain run releases.toml --where day={DAY} --folder {DAY} "
    "--ledger visits.ledger"
)

with DAG("visits", schedule="15 3 * * *", start_date=datetime(2026, 1, 1), catchup=False):
    BashOperator(
        task_id="publish",
        bash_command=COMMAND,
        # Exit code 3: published before, or no budget is left; a retry changes neither. Exit code 5
        # (charged, but outputs are missing) fails, because a person must decide.
        skip_on_exit_code=3,
        retries=3,
        retry_delay=timedelta(minutes=10),
    )

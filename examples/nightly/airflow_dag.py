"""A task of Airflow 2 or 3 that publishes the day before."""

import subprocess
from datetime import datetime, timedelta
from pathlib import Path

from airflow import DAG
from airflow.exceptions import AirflowFailException, AirflowSkipException

# In Airflow 2: from airflow.operators.python import PythonOperator
from airflow.providers.standard.operators.python import PythonOperator

# The day before the run. `ds` is that day in Airflow 2, and the day of the run in Airflow 3.
DAY = "{{ macros.ds_add(data_interval_end | ds, -1) }}"
FOLDER = "/srv/visits"


def publish(day: str) -> None:
    """Publish a day; only failures that a retry can repair are retried."""
    # Without the folder of the day, a run would publish noise, and charge the day.
    (Path(FOLDER) / "visits" / f"day={day}").stat()
    words = ["run", "releases.toml", "--where", f"day={day}", "--folder", day]
    # With its path if dpgrain is in another environment than Airflow.
    done = subprocess.run(["dpgrain", *words, "--ledger", "visits.ledger"], cwd=FOLDER, check=False)
    if done.returncode == 3:
        raise AirflowSkipException("published before")
    if done.returncode in (2, 5, 7):
        raise AirflowFailException("a person must decide; the log has the reason")
    done.check_returncode()


with DAG("visits", schedule="15 3 * * *", start_date=datetime(2026, 1, 1), catchup=False):
    PythonOperator(
        task_id="publish",
        python_callable=publish,
        op_args=[DAY],
        retries=3,
        retry_delay=timedelta(minutes=10),
    )

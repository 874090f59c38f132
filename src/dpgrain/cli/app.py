"""The program ``dpgrain``: its commands, and exit codes for errors and signals."""

from __future__ import annotations

import signal
import sys
import warnings
from io import TextIOWrapper
from typing import Annotated, Any

import typer

import dpgrain as dg
from dpgrain import statistics
from dpgrain.cli.command import group, help_all_option
from dpgrain.cli.printing import say, say_error
from dpgrain.cli.spelling import spelled_inside
from dpgrain.errors import (
    AccessError,
    DpgrainError,
    MissingPackageError,
    ParameterError,
    RefusedError,
    SchemaError,
)
from dpgrain.publishing.receipt import collected_receipts

app = group(
    "Differential privacy at the granularity you choose.",
    {
        "Begin here": {"demo": "dpgrain.cli.demo_command:demo"},
        "Publish from a table": {
            **{
                name.replace("_", "-"): f"dpgrain.cli.statistic_commands:{name}"
                for name in statistics.OFFERED
            },
            "mean-of-users": "dpgrain.cli.means_command:mean_of_users",
            "run": "dpgrain.cli.run_command:run",
        },
        "Learn from a table": {
            "fit": "dpgrain.cli.fit_command:fit",
            "predict": "dpgrain.cli.predict_command:predict",
        },
        "Plan, read guarantees, keep account, audit": {
            "plan": "dpgrain.cli.plan_commands:plan",
            "guarantee": "dpgrain.cli.guarantee_command:guarantee",
            "ledger": "dpgrain.cli.ledger_commands:ledger",
            "audit": "dpgrain.cli.audit_command:audit",
        },
    },
    name="dpgrain",
    add_completion=True,
)


# Exit codes of a failure after a charge: a retry can neither repair it nor publish.
_AFTER_CHARGE: dict[object, int] = {1: 5, 2: 5}


def main() -> None:
    """Run the command line; if it fails, print which ledger lines stay charged."""
    with collected_receipts() as receipts:
        try:
            _run()
        except BaseException as end:
            code = end.code if isinstance(end, SystemExit) else 1
            if not (code and receipts):
                raise
            if not isinstance(end, SystemExit):
                sys.excepthook(*sys.exc_info())
            for receipt in receipts:
                say_error(
                    f"Line {receipt.number:,} of the ledger {receipt.name!r} stays charged: its "
                    "reservation counts as released."
                )
            raise SystemExit(_AFTER_CHARGE.get(code, code)) from None


def _run() -> None:
    """Run a command; an error is one sentence and an exit code."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    # A character that a terminal cannot show must not lose a release.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    # A terminated run still cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        # Shell completion uses this name, also under `python -m dpgrain`.
        app(prog_name="dpgrain")
    except KeyboardInterrupt:
        say_error("Interrupted.")
        raise SystemExit(130) from None
    except DpgrainError as error:
        if debug:
            raise
        say_error(f"Error: {error}", style="bold red")
        raise SystemExit(_code(error)) from None


def _code(error: DpgrainError) -> int:
    """Return the exit code of an error; docs/command-line.md lists them."""
    if isinstance(error, RefusedError):
        return 5 if error.missing else 7 if error.spent else 3
    permanent = (ParameterError, SchemaError, AccessError, MissingPackageError)
    return 2 if isinstance(error, permanent) else 1


def _show_warning(message: Warning | str, *_: Any) -> None:
    say_error(f"Warning: {spelled_inside(str(message))}", style="yellow")


def _version(wanted: bool) -> None:
    if wanted:
        say(f"dpgrain {dg.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    help_all: Annotated[bool, help_all_option(hidden=True)] = False,
) -> None:
    # `_run` reads --debug at any position; declared here for --help.
    del debug, version, help_all

"""The program ``dpgrain`` with its commands, and the way errors and signals end its process."""

from __future__ import annotations

import signal
import sys
import warnings
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dpgrain as dg
from dpgrain import statistics
from dpgrain.cli.command import group, help_of_all
from dpgrain.cli.printing import console, errors
from dpgrain.cli.spelling import spelled_inside
from dpgrain.errors import DpgrainError, ParameterError, RefusedError
from dpgrain.publishing.receipt import collected_receipts

if TYPE_CHECKING:
    from dpgrain.publishing.receipt import Receipt

app = group(
    "Differential privacy at the granularity you choose.",
    {
        "Begin here": {"demo": "dpgrain.cli.demo:demo"},
        "Publish from a table": {
            **{
                name.replace("_", "-"): f"dpgrain.cli.statistics:{name}"
                for name in statistics.OFFERED
            },
            "mean-of-users": "dpgrain.cli.means:mean_of_users",
            "run": "dpgrain.cli.run:run",
        },
        "Learn from a table": {
            "fit": "dpgrain.cli.fit:fit",
            "predict": "dpgrain.cli.predict:predict",
        },
        "Plan, read guarantees, keep account, audit": {
            "plan": "dpgrain.cli.plan:plan",
            "guarantee": "dpgrain.cli.guarantee:guarantee",
            "ledger": "dpgrain.cli.ledger:ledger",
            "audit": "dpgrain.cli.audit:audit",
        },
    },
    name="dpgrain",
    add_completion=True,
)


def main() -> None:
    """Run the command line, and say of what ends it early which lines of ledgers stay charged."""
    with collected_receipts() as receipts:
        try:
            _run()
        except BaseException as end:
            if getattr(end, "code", True):
                for receipt in receipts:
                    errors().print(_stays(receipt), markup=False, highlight=False)
            raise


def _stays(receipt: Receipt) -> str:
    return (
        f"Line {receipt.number:,} of the ledger {receipt.name!r} stays charged: its "
        "reservation counts as released."
    )


def _run() -> None:
    """Run a command: one sentence for an error, and the exit code of its kind."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    # A letter that a terminal cannot show must not lose a release; a terminated run still cleans up.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        # Completion goes by this name, also where `python -m dpgrain` is what runs.
        app(prog_name="dpgrain")
    except KeyboardInterrupt:
        errors().print("Interrupted.", highlight=False)
        raise SystemExit(130) from None
    except DpgrainError as error:
        if debug:
            raise
        errors().print(f"Error: {error}", style="bold red", markup=False, highlight=False)
        raise SystemExit(_code(error)) from None


def _code(error: DpgrainError) -> int:
    """Return the exit code of an error, as docs/command-line.md lists them."""
    if isinstance(error, RefusedError):
        return 3
    return 2 if isinstance(error, ParameterError) else 1


def _show_warning(message: Warning | str, *_: Any) -> None:
    errors().print(
        f"Warning: {spelled_inside(str(message))}", style="yellow", markup=False, highlight=False
    )


def _version(asked: bool) -> None:
    if asked:
        console().print(f"dpgrain {dg.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    help_all: Annotated[bool, help_of_all(hidden=True)] = False,
) -> None:
    # --debug is read by `main` wherever it stands; declared here so that --help shows it.
    del debug, version, help_all

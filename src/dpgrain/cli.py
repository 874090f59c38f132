"""The command line: histogram, guarantee, demo."""

from __future__ import annotations

import math
import signal
import sys
import warnings
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.units import Element, Level, Record, Relation, Unit, User
from dpgrain.wording import powers, rounded_up

if TYPE_CHECKING:
    from dpgrain.guarantee import Guarantee
    from dpgrain.statistics.release import Histogram

Noise: TypeAlias = Literal["gaussian", "laplace"]

app = typer.Typer(
    name="dpgrain",
    help="Differential privacy at the granularity you choose: records, elements or users.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main() -> None:
    """Run the command line: one sentence for an error, exit code 2 for a wrong request, 1 otherwise."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    # What a terminal cannot show must not lose a release; a terminated run still cleans up.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        app()
    except KeyboardInterrupt:
        _errors().print("Interrupted.", highlight=False)
        raise SystemExit(130) from None
    except DpgrainError as error:
        if debug:
            raise
        _errors().print(f"Error: {error}", style="bold red", markup=False, highlight=False)
        raise SystemExit(2 if isinstance(error, ValueError) else 1) from None


def _show_warning(message: Warning | str, *_: Any) -> None:
    _errors().print(f"Warning: {message}", style="yellow", markup=False, highlight=False)


def _errors() -> Any:
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True)


def _version(asked: bool) -> None:
    if asked:
        import dpgrain

        _console().print(f"dpgrain {dpgrain.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    # --debug is read by `main` wherever it stands; declared here so that --help shows it.
    del debug, version


@app.command(
    epilog="Example:  dpgrain histogram speeches.parquet --user speaker --item word "
    "--element topic --epsilon 1 --delta 1e-6 --report words.html"
)
def histogram(
    source: Annotated[str, typer.Argument(help="Parquet or CSV file, or a glob in quotes.")],
    item: Annotated[str, typer.Option(help="Column of what is counted.")],
    epsilon: Annotated[float | None, typer.Option(help="The promised ε, such as 1.")] = None,
    delta: Annotated[float, typer.Option(help="The promised δ, such as 1e-6.")] = 0.0,
    user: Annotated[str | None, typer.Option(help="Column of whose a record is.")] = None,
    unit: Annotated[
        Level | None, typer.Option(help="What is protected; element where --element is given.")
    ] = None,
    element: Annotated[
        str | None,
        typer.Option(help="Column of cells, or a .parquet/.csv file of two columns: item, cell."),
    ] = None,
    max_elements: Annotated[
        int | None, typer.Option(help="With --unit user: elements of a user that are used.")
    ] = None,
    relation: Annotated[
        Relation, typer.Option(help="Neighbours: unit removed or exchanged.")
    ] = "zero_out",
    clip: Annotated[
        str, typer.Option(help="Clipping bound of a unit's data, a number or 'auto'.")
    ] = "auto",
    domain: Annotated[
        Path | None,
        typer.Option(help="File whose first column (or lines) is the public list of items."),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column of what a record counts; 1 without it.")
    ] = None,
    noise: Annotated[Noise, typer.Option(help="Law of the noise.")] = "gaussian",
    n_users: Annotated[int | None, typer.Option(help="Public number of enrolled users.")] = None,
    nonnegative: Annotated[
        bool, typer.Option("--nonnegative", help="Set negative estimates to 0.")
    ] = False,
    max_items: Annotated[
        int, typer.Option(help="Items of one unit that take part in selecting.", min=1)
    ] = 1000,
    delimiter: Annotated[str, typer.Option(help="Delimiter of a CSV file.")] = ",",
    top: Annotated[int, typer.Option(help="Estimates to print.", min=1)] = 20,
    output: Annotated[
        Path | None, typer.Option(help="Write all estimates: .parquet, .csv or .json.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report.")] = None,
    save: Annotated[
        Path | None, typer.Option(help="Save the release with its guarantee (.parquet).")
    ] = None,
    memory: Annotated[str, typer.Option(help="Working memory, such as 1GB.")] = "1GB",
    check: Annotated[
        bool,
        typer.Option("--check", help="Only list bad values, for the curator: NOT private."),
    ] = False,
) -> None:
    """Publish how much of each item the users hold, with a true promise."""
    from dpgrain.data.table import read
    from dpgrain.statistics.histogram import histogram as publish
    from dpgrain.statistics.release import check_format

    table = read(source, user=user, n_users=n_users, memory=memory, delimiter=delimiter)
    if check:
        _console().print(table.check(item, weight), markup=False, highlight=False)
        return
    if epsilon is None:
        raise ParameterError("Give --epsilon, such as --epsilon 1.")
    if output is not None:
        check_format(output)
    _check_outputs([output, report, save], [source, domain, element])
    release = publish(
        table,
        item,
        unit=_unit(unit, element, max_elements, table.schema),
        epsilon=epsilon,
        delta=delta,
        relation=relation,
        clip=_clip(clip),
        domain=None if domain is None else _domain(domain, table.is_integer(item)),
        weight=weight,
        noise=noise,
        nonnegative=nonnegative,
        max_items=max_items,
    )
    if output is not None:
        release.write(output)
    if report is not None:
        release.report(report)
    if save is not None:
        release.save(save)
    _print_estimates(release, top)
    for path in (output, report, save):
        if path is not None:
            _console().print(f"Written: {path}", markup=False, highlight=False)


@app.command(
    epilog="Examples:  dpgrain guarantee words.parquet    "
    "dpgrain guarantee --noise-multiplier 4.2 --delta 1e-6 --unit element"
)
def guarantee(
    release: Annotated[
        Path | None, typer.Argument(help="A release saved with --save, or leave out.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Gaussian noise sd ÷ clipping bound.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The δ at which to answer.")] = None,
    unit: Annotated[Level, typer.Option(help="Whose data are clipped.")] = "element",
    releases: Annotated[int, typer.Option(help="How many such releases.", min=1)] = 1,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Elements of a user may fall on the same items."),
    ] = False,
) -> None:
    """Show what a release, or a noise multiplier, promises to 1, 2, 5, 10, … units of one person."""
    from dpgrain.accounting import Contribution, Gaussian
    from dpgrain.guarantee import Guarantee
    from dpgrain.statistics.release import Histogram

    if release is not None:
        if noise_multiplier is not None:
            raise ParameterError("Give either a saved release or --noise-multiplier.")
        promise = Histogram.load(release).guarantee
        _console().print(str(promise), markup=False, highlight=False)
    elif noise_multiplier is None or delta is None:
        raise ParameterError("Give a saved release, or --noise-multiplier and --delta.")
    else:
        contribution = Contribution(block=unit, layout="shared" if shared else "disjoint")
        event = Gaussian(noise_multiplier, contribution, releases)
        promise = Guarantee(unit, "a partition", "zero_out", delta, event)
    _print_curve(promise, promise.delta if delta is None else delta)


@app.command(epilog="Example:  dpgrain demo --folder demo")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the report is written.")] = Path("demo"),
) -> None:
    """Run the main job on data at hand and write a report."""
    from dpgrain.demo import run

    console = _console()
    result = run(folder, say=lambda text: console.print(text, markup=False, highlight=False))
    _print_estimates(result.release, 15)
    console.print(f"Report: {result.report}", markup=False, highlight=False)


def _check_outputs(outputs: list[Path | None], inputs: list[str | Path | None]) -> None:
    """Refuse what could not be written, or would overwrite an input or another output."""
    from dpgrain.files import check_writable

    taken = {Path(path).resolve() for path in inputs if path is not None}
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in taken:
            raise ParameterError(
                f"{str(path)!r} is already used in this command; name another file."
            )
        taken.add(path.resolve())
        check_writable(path)


def _console() -> Any:
    from rich.console import Console

    return Console(soft_wrap=True)


def _unit(name: Level | None, element: str | None, max_elements: int | None, columns: Any) -> Unit:
    by: Any = element
    if element is not None and element not in columns and Path(element).suffix:
        by = Path(element)
    if name is None:
        if element is None:
            raise ParameterError(
                "Say what is protected: --element COLUMN, --unit user or --unit record."
            )
        name = "element"
    if max_elements is not None and name != "user":
        raise ParameterError("--max-elements goes with --unit user.")
    if name == "record":
        return Record()
    if name == "element":
        return Element(by)
    return User(max_elements, by)


def _clip(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"--clip must be a number or 'auto', not {text!r}.") from None


def _domain(path: Path, integers: bool) -> list[Any]:
    """The first column of a Parquet or CSV file, or the lines of a text file."""
    from dpgrain.data.elements import read_file
    from dpgrain.errors import DataError

    values: list[Any]
    if path.suffix.lower() in (".parquet", ".csv"):
        values = read_file(path).column(0).to_pylist()
    else:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"The domain {str(path)!r} cannot be read; is it UTF-8 text?"
            ) from error
        values = [line for line in lines if line]
    if not integers:
        return [str(value) for value in values]
    try:
        return [int(value) for value in values]
    except (TypeError, ValueError):
        raise ParameterError(
            f"The domain {str(path)!r} must hold integers, as the item column does."
        ) from None


def _print_estimates(release: Histogram, top: int) -> None:
    from rich.table import Table

    console = _console()
    table = Table(title=f"Largest {min(top, len(release))} of {len(release):,} estimates")
    table.add_column("item", overflow="fold")
    for name in ("estimate", "std. error", "95% low", "95% high"):
        table.add_column(name, justify="right")
    for row in release.largest(top).to_pylist():
        numbers = (row["estimate"], row["std_error"], row["low"], row["high"])
        table.add_row(_plain(str(row["item"])), *(f"{number:,.1f}" for number in numbers))
    console.print(table)
    console.print(str(release.guarantee), markup=False, highlight=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape("".join(c if c.isprintable() else "�" for c in text))


def _print_curve(promise: Guarantee, delta: float) -> None:
    from rich.table import Table

    table = Table(title=f"ε at δ = {powers(delta)}")
    person = "how many users" if promise.level == "user" else "of one person"
    table.add_column(person, justify="right")
    relations: tuple[Relation, ...] = ("zero_out", "replace")
    for relation in relations:
        table.add_column(relation, justify="right")
    for k in (1, 2, 5, 10, 20, 50, 100):
        row = [promise.epsilon(delta, units=k, relation=relation) for relation in relations]
        plural = "s" if k > 1 else ""
        table.add_row(f"{k} {promise.level}{plural}", *(_shown(value) for value in row))
    _console().print(table)
    if math.isinf(promise.epsilon(delta, units=100)):
        _console().print(
            "No promise: nothing bounds it, or more than δ was spent on selecting unknown items; "
            "ask at a larger --delta.",
            highlight=False,
        )


def _shown(epsilon: float) -> str:
    return "no promise" if math.isinf(epsilon) else rounded_up(epsilon, 4)


if __name__ == "__main__":
    main()

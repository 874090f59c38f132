"""The command line: one command for each statistic, and guarantee, plan, fit, predict, demo."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dpgrain.cli_accounting import guarantee, plan
from dpgrain.cli_learn import fit, predict
from dpgrain.cli_table import Check, Decimal, Delimiter, Types, opened, tell_curator
from dpgrain.errors import DpgrainError, ParameterError
from dpgrain.terminal import console, errors, plain
from dpgrain.units import OWN_UNIT, Element, Level, Record, Relation, Unit, User

if TYPE_CHECKING:
    from dpgrain.statistics.release import Release
    from dpgrain.tables.table import UserTable

Noise: TypeAlias = Literal["gaussian", "laplace"]
AnyNoise: TypeAlias = Literal["auto", "gaussian", "laplace"]
MeanMethod: TypeAlias = Literal["auto", "clip", "recentred", "softcore", "winsorized"]

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
        errors().print("Interrupted.", highlight=False)
        raise SystemExit(130) from None
    except DpgrainError as error:
        if debug:
            raise
        errors().print(f"Error: {error}", style="bold red", markup=False, highlight=False)
        raise SystemExit(2 if isinstance(error, ValueError) else 1) from None


def _show_warning(message: Warning | str, *_: Any) -> None:
    errors().print(f"Warning: {message}", style="yellow", markup=False, highlight=False)


def _version(asked: bool) -> None:
    if asked:
        import dpgrain

        console().print(f"dpgrain {dpgrain.__version__}", highlight=False)
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


# The options that commands share.
_Source: TypeAlias = Annotated[
    str, typer.Argument(help="Parquet or CSV file, or a glob in quotes.", metavar="SOURCE")
]
_Item: TypeAlias = Annotated[list[str], typer.Option(help="Column of what is counted; may repeat.")]
_Value: TypeAlias = Annotated[str, typer.Option(help="Column of numbers.")]
_By: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="Column to group by; may repeat. One number without it.")
]
_Epsilon: TypeAlias = Annotated[float | None, typer.Option(help="The promised ε, such as 1.")]
_Delta: TypeAlias = Annotated[float, typer.Option(help="The promised δ, such as 1e-6.")]
_User: TypeAlias = Annotated[str | None, typer.Option(help="Column of whose a record is.")]
_Level: TypeAlias = Annotated[
    Level | None,
    typer.Option("--unit", help="What is protected; element where --element is given."),
]
_Element: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Column of cells, or a .parquet/.csv file of two columns: item, cell."),
]
_MaxElements: TypeAlias = Annotated[
    int | None, typer.Option(help="With --unit user: elements of a user that are used.")
]
_Relation: TypeAlias = Annotated[
    Relation, typer.Option(help="Neighbours: unit removed or exchanged.")
]
_Bounds: TypeAlias = Annotated[
    tuple[float, float] | None,
    typer.Option(help="LOW HIGH: numbers beyond are cut off; found privately without it."),
]
_Clip: TypeAlias = Annotated[
    str, typer.Option(help="Clipping bound of a unit's data, a number or 'auto'.")
]
_Domain: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="File whose first column (or lines) is the public list of items; COLUMN=FILE for one of "
        "several columns; or a file with all of them."
    ),
]
_Cells: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="NAME=COLUMN:FILE adds a column of cells: FILE has a value and its cell in a row."
    ),
]
_NoiseLaw: TypeAlias = Annotated[Noise, typer.Option(help="Law of the noise.")]
_AnyNoiseLaw: TypeAlias = Annotated[
    AnyNoise,
    typer.Option(help="Law of the noise; auto takes Laplace where that is known to be less."),
]
_Users: TypeAlias = Annotated[int | None, typer.Option(help="Public number of enrolled users.")]
_MaxItems: TypeAlias = Annotated[
    int, typer.Option(help="Items of one unit that take part in selecting.", min=1)
]
_Shown: TypeAlias = Annotated[int, typer.Option("--top", help="Estimates to print.", min=1)]
_Output: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write all estimates: .parquet, .csv or .json.")
]
_Report: TypeAlias = Annotated[Path | None, typer.Option(help="Write an HTML report.")]
_Save: TypeAlias = Annotated[
    Path | None, typer.Option(help="Save the release with its guarantee (.parquet).")
]
_Memory: TypeAlias = Annotated[str, typer.Option(help="Working memory, such as 1GB.")]


@dataclass(frozen=True)
class _Files:
    """Where a release goes, checked before anything is spent."""

    output: Path | None
    report: Path | None
    save: Path | None

    def check(self, inputs: list[str | Path | None]) -> None:
        from dpgrain._files import check_outputs
        from dpgrain.statistics.release import check_format

        if self.output is not None:
            check_format(self.output)
        check_outputs([self.output, self.report, self.save], inputs)

    def write(self, release: Release) -> None:
        if self.output is not None:
            release.write(self.output)
        if self.report is not None:
            release.report(self.report)
        if self.save is not None:
            release.save(self.save)

    def say(self) -> None:
        for path in (self.output, self.report, self.save):
            if path is not None:
                console().print(f"Written: {path}", markup=False, highlight=False)


def _publish(
    statistic: Callable[..., Release],
    table: UserTable,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    files: _Files,
    inputs: list[str | Path | None],
    shown: int,
) -> None:
    """Check, publish, write, and only then print."""
    if options["epsilon"] is None:
        raise ParameterError("Give --epsilon, such as --epsilon 1.")
    files.check(inputs)
    release = statistic(table, *arguments, **options)
    files.write(release)
    _print_estimates(release, shown)
    files.say()


@app.command(
    epilog="Example:  dpgrain histogram speeches.parquet --user speaker --item word "
    "--element topic --epsilon 1 --delta 1e-6 --report words.html"
)
def histogram(
    source: _Source,
    item: _Item,
    epsilon: _Epsilon = None,
    delta: _Delta = 0.0,
    user: _User = None,
    unit: _Level = None,
    element: _Element = None,
    max_elements: _MaxElements = None,
    relation: _Relation = "zero_out",
    clip: _Clip = "auto",
    domain: _Domain = None,
    weight: Annotated[
        str | None, typer.Option(help="Column of what a record counts; 1 without it.")
    ] = None,
    noise: _NoiseLaw = "gaussian",
    nonnegative: Annotated[
        bool, typer.Option("--nonnegative", help="Set negative estimates to 0.")
    ] = False,
    max_items: _MaxItems = 1000,
    n_users: _Users = None,
    cells: _Cells = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
    top: _Shown = 20,
    output: _Output = None,
    report: _Report = None,
    save: _Save = None,
    memory: _Memory = "1GB",
) -> None:
    """Publish how much of each item the users hold, with a true promise."""
    from dpgrain.statistics.histogram import histogram as publish

    table = opened(
        source,
        user=user,
        n_users=n_users,
        memory=memory,
        delimiter=delimiter,
        types=types,
        decimal=decimal,
        cells=cells,
    )
    if check:
        tell_curator(table, items=item, weight=weight, domain=_domain(domain, item, table))
        return
    _publish(
        publish,
        table,
        (item if len(item) > 1 else item[0],),
        {
            "unit": _unit(unit, element, max_elements, table.schema),
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation,
            "clip": _clip(clip),
            "domain": _domain(domain, item, table),
            "weight": weight,
            "noise": noise,
            "nonnegative": nonnegative,
            "max_items": max_items,
        },
        _Files(output, report, save),
        [source, element, *_paths(domain, cells)],
        top,
    )


@app.command(
    epilog="Example:  dpgrain top speeches.parquet --user speaker --item word --element word "
    "--epsilon 1 --delta 1e-6 --k 50"
)
def top(
    source: _Source,
    item: _Item,
    epsilon: _Epsilon = None,
    delta: _Delta = 0.0,
    user: _User = None,
    unit: _Level = None,
    element: _Element = None,
    max_elements: _MaxElements = None,
    relation: _Relation = "zero_out",
    k: Annotated[
        int | None, typer.Option(help="Items to publish; all that pass without it.", min=1)
    ] = None,
    method: Annotated[
        Literal["auto", "gaussian", "truncated", "laplace", "gumbel"],
        typer.Option(help="How items are chosen; auto takes what is best for the public numbers."),
    ] = "auto",
    domain: _Domain = None,
    clip: _Clip = "auto",
    max_items: _MaxItems = 200,
    n_users: _Users = None,
    cells: _Cells = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
    shown: _Shown = 20,
    output: _Output = None,
    report: _Report = None,
    save: _Save = None,
    memory: _Memory = "1GB",
) -> None:
    """Publish the items that most users have, known beforehand or not."""
    from dpgrain.statistics.top import top as publish

    table = opened(
        source,
        user=user,
        n_users=n_users,
        memory=memory,
        delimiter=delimiter,
        types=types,
        decimal=decimal,
        cells=cells,
    )
    if check:
        tell_curator(table, items=item, domain=_domain(domain, item, table))
        return
    _publish(
        publish,
        table,
        (item if len(item) > 1 else item[0],),
        {
            "k": k,
            "unit": _unit(unit, element, max_elements, table.schema),
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation,
            "clip": _clip(clip),
            "domain": _domain(domain, item, table),
            "method": method,
            "max_items": max_items,
        },
        _Files(output, report, save),
        [source, element, *_paths(domain, cells)],
        shown,
    )


@app.command(
    epilog="Example:  dpgrain count visits.parquet --user person --by page --element topic "
    "--epsilon 1 --delta 1e-6"
)
def count(
    source: _Source,
    value: Annotated[
        str | None, typer.Option(help="Count only records with a finite number here.")
    ] = None,
    by: _By = None,
    epsilon: _Epsilon = None,
    delta: _Delta = 0.0,
    user: _User = None,
    unit: _Level = None,
    element: _Element = None,
    max_elements: _MaxElements = None,
    relation: _Relation = "zero_out",
    clip: _Clip = "auto",
    domain: _Domain = None,
    noise: _AnyNoiseLaw = "auto",
    max_items: _MaxItems = 1000,
    n_users: _Users = None,
    cells: _Cells = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
    top: _Shown = 20,
    output: _Output = None,
    report: _Report = None,
    save: _Save = None,
    memory: _Memory = "1GB",
) -> None:
    """Publish the number of records, overall or by group."""
    from dpgrain.statistics.histogram import count as publish

    table = opened(
        source,
        user=user,
        n_users=n_users,
        memory=memory,
        delimiter=delimiter,
        types=types,
        decimal=decimal,
        cells=cells,
    )
    if check:
        values = [] if value is None else [value]
        tell_curator(table, items=by or [], values=values, domain=_domain(domain, by or [], table))
        return
    _publish(
        publish,
        table,
        (value,),
        {
            "by": by or None,
            "unit": _unit(unit, element, max_elements, table.schema),
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation,
            "clip": _clip(clip),
            "domain": _domain(domain, by or [], table),
            "noise": noise,
            "max_items": max_items,
        },
        _Files(output, report, save),
        [source, element, *_paths(domain, cells)],
        top,
    )


def _publish_numbers(
    name: str,
    table: UserTable,
    value: str,
    by: list[str],
    options: dict[str, Any],
    domain: list[str] | None,
    files: _Files,
    inputs: list[str | Path | None],
    shown: int,
) -> None:
    """Publish a statistic of one column of numbers."""
    from dpgrain import statistics

    grouped = {"by": by or None, "domain": _domain(domain, by, table)}
    _publish(
        getattr(statistics, name), table, (value,), {**grouped, **options}, files, inputs, shown
    )


def _of_numbers(name: str, example: str) -> None:
    """Add the command of a statistic of one column of numbers."""

    def command(
        source: _Source,
        value: _Value,
        by: _By = None,
        epsilon: _Epsilon = None,
        delta: _Delta = 0.0,
        user: _User = None,
        unit: _Level = None,
        element: _Element = None,
        max_elements: _MaxElements = None,
        relation: _Relation = "zero_out",
        bounds: _Bounds = None,
        clip: _Clip = "auto",
        domain: _Domain = None,
        noise: _AnyNoiseLaw = "auto",
        max_items: _MaxItems = 1000,
        n_users: _Users = None,
        cells: _Cells = None,
        delimiter: Delimiter = ",",
        types: Types = None,
        decimal: Decimal = ".",
        check: Check = False,
        top: _Shown = 20,
        output: _Output = None,
        report: _Report = None,
        save: _Save = None,
        memory: _Memory = "1GB",
    ) -> None:
        table = opened(
            source,
            user=user,
            n_users=n_users,
            memory=memory,
            delimiter=delimiter,
            types=types,
            decimal=decimal,
            cells=cells,
        )
        if check:
            known = _domain(domain, by or [], table)
            tell_curator(table, items=by or [], values=[value], bounds=bounds, domain=known)
            return
        _publish_numbers(
            name,
            table,
            value,
            by or [],
            {
                "unit": _unit(unit, element, max_elements, table.schema),
                "epsilon": epsilon,
                "delta": delta,
                "relation": relation,
                "clip": _clip(clip),
                "noise": noise,
                "max_items": max_items,
                "bounds": bounds,
            },
            domain,
            _Files(output, report, save),
            [source, element, *_paths(domain, cells)],
            top,
        )

    command.__doc__ = f"Publish the {name} of a column of numbers, overall or by group."
    app.command(name=name, epilog=f"Example:  dpgrain {name} {example}")(command)


_of_numbers(
    "sum",
    "sales.parquet --user customer --value paid --bounds 0 500 --unit user --epsilon 1 --delta 1e-6",
)


@app.command(
    epilog="Examples:  dpgrain mean scores.parquet --user student --value score --bounds 0 100 "
    "--by region --unit user --epsilon 1 --delta 1e-6    "
    "dpgrain mean days.parquet --user person --columns steps,sleep,pulse --bound 20000 --unit user "
    "--epsilon 1 --delta 1e-6 --output mean.json"
)
def mean(
    context: typer.Context,
    source: _Source,
    value: Annotated[
        str | None, typer.Option(help="Column of numbers; or --columns, for vectors.")
    ] = None,
    by: _By = None,
    epsilon: _Epsilon = None,
    delta: _Delta = 0.0,
    user: _User = None,
    unit: _Level = None,
    element: _Element = None,
    max_elements: _MaxElements = None,
    relation: _Relation = "zero_out",
    bounds: _Bounds = None,
    clip: _Clip = "auto",
    domain: _Domain = None,
    noise: _AnyNoiseLaw = "auto",
    max_items: _MaxItems = 1000,
    n_users: _Users = None,
    cells: _Cells = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
    top: _Shown = 20,
    output: _Output = None,
    report: _Report = None,
    save: _Save = None,
    memory: _Memory = "1GB",
    columns: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns of numbers, as a,b,c; may repeat. With --bound and --unit user: the mean of "
            "users' vectors, each the mean of the user's rows."
        ),
    ] = None,
    bound: Annotated[
        float | None,
        typer.Option(
            help="With --columns: public bound on the norm of a row; longer ones are cut."
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            help="With --columns: about how far users' vectors lie from their mean, if that is known."
        ),
    ] = None,
    method: Annotated[
        MeanMethod,
        typer.Option(help="With --columns: which private mean; auto by the public numbers."),
    ] = "auto",
) -> None:
    """Publish the mean of a column of numbers, overall or by group; or of users' vectors."""
    from dpgrain.cli_means import check_options, named, publish

    check_options([name for name in context.params if _is_given(context, name)])
    table = opened(
        source,
        user=user,
        n_users=n_users,
        memory=memory,
        delimiter=delimiter,
        types=types,
        decimal=decimal,
        cells=cells,
    )
    if check:
        values = named(columns or [], table) if value is None else [value]
        known = _domain(domain, by or [], table)
        tell_curator(table, items=by or [], values=values, bounds=bounds, domain=known)
        return
    if value is None:
        publish(
            table,
            columns or [],
            unit=unit,
            output=output,
            top=top,
            bound=bound,
            radius=radius,
            method=method,
            epsilon=epsilon,
            delta=delta,
            relation=relation,
            n_users=n_users,
        )
        return
    _publish_numbers(
        "mean",
        table,
        value,
        by or [],
        {
            "unit": _unit(unit, element, max_elements, table.schema),
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation,
            "clip": _clip(clip),
            "noise": noise,
            "max_items": max_items,
            "bounds": bounds,
        },
        domain,
        _Files(output, report, save),
        [source, element, *_paths(domain, cells)],
        top,
    )


def _is_given(context: typer.Context, name: str) -> bool:
    """Whether an option was stated, also with the value it has by default."""
    stated = context.get_parameter_source(name)
    return stated is not None and stated.name == "COMMANDLINE"


_of_numbers(
    "variance",
    "scores.parquet --user student --value score --bounds 0 100 --unit user --epsilon 1 --delta 1e-6",
)


@app.command(
    epilog="Example:  dpgrain quantile scores.parquet --user student --value score "
    "--bounds 0 100 --q 0.5 --q 0.9 --unit user --epsilon 1 --delta 1e-6"
)
def quantile(
    source: _Source,
    value: _Value,
    by: _By = None,
    epsilon: _Epsilon = None,
    delta: _Delta = 0.0,
    user: _User = None,
    unit: _Level = None,
    element: _Element = None,
    max_elements: _MaxElements = None,
    relation: _Relation = "zero_out",
    q: Annotated[
        list[float] | None, typer.Option(help="Rank in [0, 1]; may repeat. The median without it.")
    ] = None,
    bins: Annotated[
        int | None, typer.Option(help="16, 256 or 4096 bins: how fine quantiles are.")
    ] = None,
    bounds: _Bounds = None,
    clip: _Clip = "auto",
    domain: _Domain = None,
    noise: _NoiseLaw = "gaussian",
    max_items: _MaxItems = 1000,
    n_users: _Users = None,
    cells: _Cells = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
    top: _Shown = 20,
    output: _Output = None,
    report: _Report = None,
    save: _Save = None,
    memory: _Memory = "1GB",
) -> None:
    """Publish quantiles of a column of numbers, overall or by group."""
    from dpgrain.statistics.quantiles import quantiles as publish

    table = opened(
        source,
        user=user,
        n_users=n_users,
        memory=memory,
        delimiter=delimiter,
        types=types,
        decimal=decimal,
        cells=cells,
    )
    if check:
        known = _domain(domain, by or [], table)
        tell_curator(table, items=by or [], values=[value], bounds=bounds, domain=known)
        return
    _publish(
        publish,
        table,
        (value, q or [0.5]),
        {
            "by": by or None,
            "unit": _unit(unit, element, max_elements, table.schema),
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation,
            "clip": _clip(clip),
            "domain": _domain(domain, by or [], table),
            "noise": noise,
            "max_items": max_items,
            "bounds": bounds,
            "bins": bins,
        },
        _Files(output, report, save),
        [source, element, *_paths(domain, cells)],
        top,
    )


@app.command(
    name="elements-per-user",
    epilog="Example:  dpgrain elements-per-user visits.parquet --user person --element topic "
    "--epsilon 0.2 --delta 1e-6",
)
def elements_per_user(
    source: _Source,
    epsilon: _Epsilon = None,
    delta: _Delta = 0.0,
    user: _User = None,
    unit: _Level = None,
    element: _Element = None,
    relation: _Relation = "zero_out",
    noise: _NoiseLaw = "gaussian",
    n_users: _Users = None,
    cells: _Cells = None,
    delimiter: Delimiter = ",",
    types: Types = None,
    decimal: Decimal = ".",
    check: Check = False,
    top: _Shown = 40,
    output: _Output = None,
    report: _Report = None,
    save: _Save = None,
    memory: _Memory = "1GB",
) -> None:
    """Publish how many elements, and how many records, the users hold."""
    from dpgrain.statistics.holdings import elements_per_user as publish

    table = opened(
        source,
        user=user,
        n_users=n_users,
        memory=memory,
        delimiter=delimiter,
        types=types,
        decimal=decimal,
        cells=cells,
    )
    if check:
        tell_curator(table, items=[element] if element and element in table.schema else [])
        return
    protected = _unit(unit, element, None, table.schema)
    _publish(
        publish,
        table,
        (element,),
        {
            "unit": protected if protected.level == "element" else OWN_UNIT[protected.level],
            "epsilon": epsilon,
            "delta": delta,
            "relation": relation,
            "noise": noise,
        },
        _Files(output, report, save),
        [source, *_paths(None, cells)],
        top,
    )


app.command(
    epilog="Examples:  dpgrain guarantee words.parquet    "
    "dpgrain guarantee --noise-multiplier 4.2 --delta 1e-6 --unit element    "
    "dpgrain guarantee --noise-multiplier 1 --sampling-rate 0.01 --rounds 1000 --delta 1e-6 "
    "--plot curve.png"
)(guarantee)
app.add_typer(plan, name="plan")
app.command(
    epilog="Example:  dpgrain fit logistic visits.parquet --target bought --features pages,minutes "
    "--range 'pages=0:50' --range 'minutes=0:60' --categories 'device=phone|tablet' --user person "
    "--element week --epsilon 1 --delta 1e-6 --intervals 0.2 --out model.json --report fit.html"
)(fit)
app.command(
    epilog="Example:  dpgrain predict model.json new.parquet --keep person --out predictions.csv"
)(predict)


@app.command(epilog="Example:  dpgrain demo --folder demo")
def demo(
    folder: Annotated[Path, typer.Option(help="Where the report is written.")] = Path("demo"),
) -> None:
    """Run the main job on data at hand and write a report."""
    from dpgrain.demo import run

    out = console()
    result = run(folder, say=lambda text: out.print(text, markup=False, highlight=False))
    _print_estimates(result.release, 15)
    out.print(f"Report: {result.report}", markup=False, highlight=False)


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


def _paths(domain: list[str] | None, cells: list[str] | None) -> list[str | Path | None]:
    """The files that options name."""
    listed = [text.partition("=")[2] or text for text in domain or []]
    # A path may itself hold "=": both readings are kept from being overwritten.
    return [*listed, *(domain or []), *(text.partition(":")[2] for text in cells or [])]


def _domain(domain: list[str] | None, keys: list[str], table: UserTable) -> Any:
    """The public part of the domain, from files."""
    if not domain:
        return None
    if len(keys) == 1 and len(domain) == 1 and not domain[0].startswith(f"{keys[0]}="):
        return _listed(
            Path(domain[0]), table.is_integer(keys[0]) if keys[0] in table.schema else False
        )
    parts = [text.partition("=") for text in domain]
    if all(name in keys and path for name, _, path in parts):
        return {name: _listed(Path(path), table.is_integer(name)) for name, _, path in parts}
    if len(domain) > 1:
        raise ParameterError(
            f"--domain must be COLUMN=FILE for columns to group by, not {domain!r}."
        )
    return _rows(Path(domain[0]), keys, table)


def _rows(path: Path, keys: list[str], table: UserTable) -> list[tuple[Any, ...]]:
    """The rows of a file that has all the key columns."""
    from dpgrain.tables.elements import read_file

    found = read_file(path)
    missing = [key for key in keys if key not in found.column_names]
    if missing:
        raise ParameterError(
            f"The domain {str(path)!r} has no column {missing[0]!r}; give a file with "
            f"{', '.join(keys)}, or COLUMN=FILE."
        )
    columns = [_typed(found.column(key).to_pylist(), table.is_integer(key), path) for key in keys]
    return list(zip(*columns, strict=True))


def _listed(path: Path, integers: bool) -> list[Any]:
    """The first column of a Parquet or CSV file, or the lines of a text file."""
    from dpgrain.errors import DataError
    from dpgrain.tables.elements import read_file

    if path.suffix.lower() in (".parquet", ".csv"):
        return _typed(read_file(path).column(0).to_pylist(), integers, path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The domain {str(path)!r} cannot be read; is it UTF-8 text?") from error
    return _typed([line for line in lines if line], integers, path)


def _typed(values: list[Any], integers: bool, path: Path) -> list[Any]:
    from dpgrain.inputs.labels import whole

    if not integers:
        return values
    found = [whole(value) for value in values]
    if None in found:
        wrong = values[found.index(None)]
        raise ParameterError(
            f"The domain {str(path)!r} must hold integers, as the item column does, not {wrong!r}."
        )
    return found


def _print_estimates(release: Release, top: int) -> None:
    from rich.table import Table

    out = console()
    ordered = release.statistic.in_order
    table = Table(
        title=f"{'First' if ordered else 'Largest'} {min(top, len(release))} of "
        f"{len(release):,} estimates"
    )
    names = release.groups.names
    for name in names:
        table.add_column(name, overflow="fold")
    more = list(release.more)
    for name in ("estimate", "std. error", "95% low", "95% high", *more):
        table.add_column(name, justify="right")
    arrow = release.to_arrow().slice(0, top) if ordered else release.largest(top)
    for row in arrow.to_pylist():
        values = [row[column] for column in arrow.column_names[: len(names)]]
        keys = [plain("more" if value is None else str(value)) for value in values]
        numbers = (row["estimate"], row["std_error"], row["low"], row["high"])
        digits = 1 if row["std_error"] >= 1 or row["std_error"] == 0 else 4
        shown = [f"{number:,.{digits}f}" for number in numbers]
        table.add_row(*keys, *shown, *(f"{row[name]:,.0f}" for name in more))
    out.print(table)
    if len(release) > top:
        out.print("All of them: --output FILE, or a larger --top.", highlight=False)
    elif not len(release):
        out.print("None passed the threshold: give --domain or more ε.", highlight=False)
    if release.asked.care:
        out.print(f"Take care: {release.asked.take_care}.", style="yellow", highlight=False)
    out.print(str(release.guarantee), markup=False, highlight=False)


if __name__ == "__main__":
    main()

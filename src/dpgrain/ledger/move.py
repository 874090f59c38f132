"""Move a ledger to another place, so that at no moment both places accept charges."""

from __future__ import annotations

from dpgrain.errors import AccessError, ParameterError
from dpgrain.ledger import accounts
from dpgrain.ledger.lines import StoredLine, check_chain
from dpgrain.ledger.stores.store_protocol import FORMAT, MOVED, Store, Transaction


def reserve(target: Store, token: str) -> None:
    """Create the tables of a ledger without lines, which nobody can charge, for a move."""
    try:
        with target.creating() as page:
            page.set_format(FORMAT)
            page.set_mark(token, 0)
    except ParameterError:
        with target.writing() as page:
            if page.last() is not None:
                raise
            # An interrupted move reserved the place, and its ledger did not move.
            page.clear_accounts()
            page.set_mark(token, 0)


def closing_line(page: Transaction, last: StoredLine, at: str, to: str, token: str) -> StoredLine:
    """Return the final line of a ledger; in its format, earlier versions also refuse charges."""
    page.set_format(MOVED)
    return StoredLine.after(last, at, "moved", to=to, token=token)


def copy(source: Store, target: Store, at: str) -> None:
    """Copy all lines of a closed ledger to its reserved place, and open it there."""
    with source.reading() as page:
        lines = list(check_chain(page.lines()))
    final = lines[-1]
    try:
        _continue(source, target, lines, at)
    except AccessError:
        if str(final.field("to")) == target.name:
            raise
        raise _elsewhere(source, final, target) from None


def _continue(source: Store, target: Store, lines: list[StoredLine], at: str) -> None:
    """Write the lines to their reserved place, and a line of its own after them."""
    final = lines[-1]
    with target.writing() as page:
        known = page.line(final.number)
        if known is not None and known.hash == final.hash:
            return
        is_other = str(final.field("to")) != target.name
        if is_other or page.last() or page.marked(str(final.field("token"))) is None:
            raise _elsewhere(source, final, target)
        page.clear_accounts()
        for line in lines:
            page.append(line)
        accounts.rebuild(page, lines)
        page.append(StoredLine.after(final, at, "continued", source=source.name))


def _elsewhere(source: Store, final: StoredLine, target: Store) -> AccessError:
    return AccessError(
        f"{source.name!r} was moved to {final.field('to')!r} and not to {target.name!r}; use that "
        "place."
    )

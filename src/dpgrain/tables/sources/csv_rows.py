"""Rows of CSV, found and mended so that DuckDB reads each as if it stood alone.

DuckDB drops a row that is longer than its buffer and goes on somewhere inside it, so that one person's
row becomes rows of others. How it reads quotes that stand in odd places depends on the row before, and
on where its buffer ends. So long rows and odd quotes are found here, and DuckDB never sees one: it
reads a copy in which such rows are left out, or written with quotes that every reader understands.

A line feed or a carriage return ends a row, unless it stands inside quotes. A quote opens where a value
begins, behind one space at most; the next one closes. Another one behind it in the same value opens
again; in a value that begins otherwise, a quote is a letter.

Quotes are *regular* if they stand around a whole value, and are doubled inside it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bytes of the longest row that is read, without its end: half of what DuckDB holds at once.
MAX_ROW_BYTES = 8 << 20
# Bytes that are searched together, so that they stay in the cache.
_PIECE_BYTES = 1 << 19
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FEED, _RETURN, _QUOTE, _SPACE = b'\n\r" '
# States after a quote: inside quotes, behind them, or the middle of a value without quotes.
_INSIDE, _BEHIND, _MIDDLE = range(3)
# Kinds of quotes: one stands where a value may open; another is elsewhere and the first of its
# value; the last is in the same value as the quote before it. From each state, each kind leads to a
# state.
_OPENING, _LETTER, _AGAIN = range(3)
_NEXT = (
    (_BEHIND, _BEHIND, _BEHIND),
    (_INSIDE, _MIDDLE, _INSIDE),
    (_INSIDE, _MIDDLE, _MIDDLE),
)
# Shortest beginnings of values that lead to each state; the last byte stands for any byte without a
# meaning.
_BEGINNINGS = (b'"', b'""', b"\xff")

_REGULAR = re.compile(rb'"(?:[^"]|"")*+"')

_Bytes = NDArray[np.uint8]
_Bools = NDArray[np.bool_]
_Words = NDArray[np.uint64]


def read_pieces(path: str) -> Iterator[bytes]:
    """Yield the bytes of a file in pieces, unpacked if it is packed, without a mark of the byte order.

    Raises:
        OSError: if it cannot be read to its end.
    """
    opener: Any = gzip.open if path.lower().endswith(".gz") else open
    try:
        with opener(Path(path), "rb") as file:
            # The mark belongs to no value: with it, quotes of the first name would seem odd.
            yield file.read(_PIECE_BYTES).removeprefix(_BYTE_ORDER_MARK)
            while part := file.read(_PIECE_BYTES):
                yield part
    except (EOFError, zlib.error) as error:
        raise OSError from error


@dataclass(frozen=True)
class MalformedLines:
    """Lines of a file to keep from DuckDB.

    Args:
        long_rows: the rows that are longer than :data:`MAX_ROW_BYTES`: where each begins, and where the
            next does.
        irregular_quotes: True if some quotes are not regular.
    """

    long_rows: tuple[tuple[int, int], ...] = ()
    irregular_quotes: bool = False

    def __bool__(self) -> bool:
        return bool(self.long_rows) or self.irregular_quotes


def find_malformed(pieces: Iterable[bytes], delimiter: str) -> MalformedLines:
    r"""Find rows in a file that are too long, and quotes that are not regular.

    Args:
        pieces: the bytes of a file, as :func:`read_pieces` yields them.
        delimiter: the ASCII character that stands between values.

    >>> find_malformed([b"who,item\n1,", b'"' + b"2,a\n" * MAX_ROW_BYTES, b'"\n3,a\n'], ",")
    MalformedLines(long_rows=((9, 33554446),), irregular_quotes=False)
    >>> find_malformed([b'who,item\n1,5" disk\n'], ",")
    MalformedLines(long_rows=(), irregular_quotes=True)
    """
    long_rows: list[tuple[int, int]] = []
    splitter = RowSplitter(delimiter)
    start = read = 0
    for piece in pieces:
        first, last = splitter.ends(piece)
        if first >= 0:
            # A row that begins and ends inside one piece is short.
            if read + first - start > MAX_ROW_BYTES:
                long_rows.append((start, read + first + 1))
            start = read + last + 1
        read += len(piece)
    if read - start > MAX_ROW_BYTES:
        long_rows.append((start, read))
    return MalformedLines(tuple(long_rows), splitter.irregular or splitter.open)


def drop_spans(pieces: Iterable[bytes], spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Yield the bytes of a file without some spans of them, which are in order.

    >>> b"".join(drop_spans([b"abc", b"def", b"ghi"], [(1, 2), (4, 8)]))
    b'acdi'
    """
    read = 0
    for piece in pieces:
        at = 0
        for low, high in spans:
            low, high = max(low - read, at), min(high - read, len(piece))
            if low < high:
                yield piece[at:low]
                at = high
        yield piece[at:]
        read += len(piece)


class QuoteNormalizer:
    r"""A writer of the rows of a file, all of whose quotes are regular.

    A value in which a quote is a letter is put into quotes. A row with other letters behind the quotes
    of a value, or with quotes that are never closed, says nothing certain: it is left out.

    Args:
        delimiter: what stands between values, one ASCII character.

    >>> mender = QuoteNormalizer(",")
    >>> b"".join(mender.rows([b'1,5" disk\n2,"a"b\n3,"c"\n']))
    b'1,"5"" disk"\n3,"c"\n'
    >>> mender.dropped
    1
    """

    def __init__(self, delimiter: str) -> None:
        #: The number of rows that were left out.
        self.dropped = 0
        self._splitter = RowSplitter(delimiter)
        letter = re.escape(delimiter.encode())
        outside, inside = rb'[^"\r\n' + letter + rb"]", rb"[^\r\n" + letter + rb"]"
        space = b"" if delimiter == " " else b" ?"
        # Quotes and what stands behind them, or a value that begins otherwise.
        quoted = space + rb'"[^"]*+"(?:' + outside + rb'*+"[^"]*+")*+' + outside + rb"*+"
        otherwise = rb"(?!" + space + rb'")'
        value = rb"(?:" + quoted + rb"|" + otherwise + inside + rb"*+)"
        self._value = re.compile(value)
        self._row = re.compile(value + rb"(?:" + letter + value + rb")*+[\r\n]")
        # A value that has a quote, behind what stands between values.
        self._with_quote = re.compile(
            rb"(?<!" + inside + rb")(?:" + quoted + rb"|" + otherwise + outside + rb'*+"' + inside
            + rb"*+)"
        )  # fmt: skip

    def rows(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the rows of a file, each with its end, several at once.

        Args:
            pieces: the bytes of the file, in which no row is longer than :data:`MAX_ROW_BYTES`.
        """
        left = b""
        for piece in pieces:
            _, last = self._splitter.ends(piece)
            if last < 0:
                left += piece
                continue
            yield self._whole(left + piece[: last + 1])
            left = piece[last + 1 :]
        # The last row may have no end.
        if self._row.fullmatch(left + b"\n"):
            yield self._mended(left + b"\n")[:-1]
        else:
            self.dropped += 1

    def _whole(self, text: bytes) -> bytes:
        """Return some whole rows, mended all at once if no value of theirs is uncertain."""
        uncertain = False

        def mended(found: re.Match[bytes]) -> bytes:
            nonlocal uncertain
            regular = _regular(found.group())
            uncertain |= regular is None
            return regular or b""

        whole = self._with_quote.sub(mended, text)
        if not uncertain:
            return whole
        return b"".join(self._mended(row.group()) for row in self._row.finditer(text))

    def _mended(self, row: bytes) -> bytes:
        values, at = [], 0
        while at < len(row):
            result = self._value.match(row, at)
            assert result is not None  # noqa: S101 - a row is made of values
            mended = _regular(result.group())
            if mended is None:
                self.dropped += 1
                return b""
            at = result.end() + 1
            values += [mended, row[at - 1 : at]]
        return b"".join(values)


def _regular(value: bytes) -> bytes | None:
    """Return the same value with regular quotes; None if its quotes have no clear meaning."""
    if b'"' not in value:
        return value
    if not value.startswith((b'"', b' "')):
        return b'"' + value.replace(b'"', b'""') + b'"'
    inner = value.removeprefix(b" ")
    return inner if _REGULAR.fullmatch(inner) else None


class RowSplitter:
    """A reader that finds the ends of rows, piece by piece.

    Args:
        delimiter: the ASCII character that stands between values.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter.encode()
        # The beginning of the value in which the next piece begins, as far as it matters.
        self._begun = b""
        #: True once quotes were seen that are not regular.
        self.irregular = False
        self._same = np.zeros(0, dtype=np.bool_)

    @property
    def open(self) -> bool:
        """True if the text so far ends inside quotes."""
        return self._begun == _BEGINNINGS[_INSIDE]

    def ends(self, piece: bytes) -> tuple[int, int]:
        """Find the first and the last byte that end rows in the next piece; −1 without one."""
        # With the beginning of its first value in front, a piece begins outside quotes.
        whole = self._delimiter + self._begun + piece
        ahead = len(whole) - len(piece)
        if b'"' not in whole:
            first, last = _first_and_last(whole)
            self._begun = self._beginning(whole, b"")
        else:
            first, last = self._ends_outside(whole)
        return max(first - ahead, -1), max(last - ahead, -1)

    def _ends_outside(self, whole: bytes) -> tuple[int, int]:
        """Find where rows end first and last outside the quotes of a text; −1 without one."""
        letters = np.frombuffer(whole, np.uint8)
        ends = self._bits(letters, _FEED)
        if b"\r" in whole:
            ends |= self._bits(letters, _RETURN)
        inside, lead = self._inside(letters, ends | self._bits(letters, self._delimiter[0]))
        self._begun = _BEGINNINGS[lead]
        if lead != _INSIDE:
            self._begun = self._beginning(whole, self._begun)
        return _lowest_and_highest(ends & ~inside)

    def _inside(self, letters: _Bytes, separators: _Words) -> tuple[_Words, int]:
        """Find the letters inside quotes, in a text that begins outside, and its last quote's state."""
        quotes = self._bits(letters, _QUOTE)
        inside = _odd(quotes)
        opening = quotes & _next(separators)
        # Usually every other quote opens a value or is the second of two, and nothing else is needed.
        if not np.any(quotes & inside & ~(opening | _next(quotes))):
            # What follows the last letter is not known yet.
            closing = quotes & ~inside & ~_last_of(len(letters))
            self.irregular |= bool(np.any(closing & ~_previous(separators | quotes)))
            return inside, _INSIDE if inside[-1] >> np.uint64(63) else _BEHIND
        self.irregular = True
        opening |= quotes & _next(self._bits(letters, _SPACE) & _next(separators))
        if not np.any(opening):
            return opening, _MIDDLE
        counting, lead = _counting(quotes, opening, separators)
        return _odd(counting), lead

    def _bits(self, letters: _Bytes, letter: int) -> _Words:
        """Return a bit for each letter, set where it is this one, (n/64,), the first one lowest."""
        size = -(-len(letters) // 64) * 64
        # The memory is kept, as asking for it anew each time would cost more than the rest.
        if len(self._same) < size:
            self._same = np.zeros(size, dtype=np.bool_)
        np.equal(letters, letter, out=self._same[: len(letters)])
        self._same[len(letters) : size] = False
        return _packed(self._same[:size])

    def _beginning(self, whole: bytes, otherwise: bytes) -> bytes:
        """Return what matters of the last value, if it begins behind the last quote."""
        last = max(whole.rfind(mark) for mark in (self._delimiter, b"\n", b"\r"))
        if last < whole.rfind(b'"'):
            return otherwise
        value = whole[last + 1 : last + 3]
        return value if value in (b"", b" ") else _BEGINNINGS[_MIDDLE]


def _first_and_last(whole: bytes) -> tuple[int, int]:
    """Find where rows end first and last in a text without quotes; −1 without one."""
    first = [place for place in (whole.find(b"\n"), whole.find(b"\r")) if place >= 0]
    return min(first, default=-1), max(whole.rfind(b"\n"), whole.rfind(b"\r"))


def _counting(quotes: _Words, opening: _Words, separators: _Words) -> tuple[_Words, int]:
    """Return the quotes that open and close, without those that are letters, and the last state."""
    marks = _unpacked(quotes)
    places = np.flatnonzero(marks)
    values = np.searchsorted(np.flatnonzero(_unpacked(separators)), places)
    kinds = np.where(_unpacked(opening)[places], _OPENING, _LETTER)
    kinds[np.diff(values, prepend=0) == 0] = _AGAIN
    leads, lead = [_MIDDLE], _MIDDLE
    for kind in kinds.tolist():
        lead = _NEXT[lead][kind]
        leads.append(lead)
    marks[places] = np.diff(np.array(leads) == _INSIDE)
    return _packed(marks), lead


def _packed(bools: _Bools) -> _Words:
    return np.packbits(bools, bitorder="little").view("<u8")


def _unpacked(words: _Words) -> _Bools:
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)


def _next(words: _Words) -> _Words:
    """Move all bits one place further on."""
    moved = words << np.uint64(1)
    moved[1:] |= words[:-1] >> np.uint64(63)
    return moved


def _previous(words: _Words) -> _Words:
    """Move all bits one place back."""
    moved = words >> np.uint64(1)
    moved[:-1] |= words[1:] << np.uint64(63)
    return moved


def _last_of(letters: int) -> _Words:
    """Return words in which the bit of the last of n letters is set, (n/64,)."""
    words = np.zeros(-(-letters // 64), dtype=np.uint64)
    words[-1] = np.uint64(1) << np.uint64((letters - 1) % 64)
    return words


def _odd(words: _Words) -> _Words:
    """Set each bit up to which, itself included, an odd number of bits is set."""
    result = words.copy()
    for step in (1, 2, 4, 8, 16, 32):
        result ^= result << np.uint64(step)
    full = result >> np.uint64(63)
    # All bits of a word turn where the words before it hold an odd number of bits.
    result[1:] ^= -np.bitwise_xor.accumulate(full)[:-1]
    return result


def _lowest_and_highest(words: _Words) -> tuple[int, int]:
    """Return the places of the first and the last bit that is set; −1 without one."""
    some = np.flatnonzero(words)
    if not len(some):
        return -1, -1
    low, high = int(words[some[0]]), int(words[some[-1]])
    return int(some[0]) * 64 + (low & -low).bit_length() - 1, int(
        some[-1]
    ) * 64 + high.bit_length() - 1

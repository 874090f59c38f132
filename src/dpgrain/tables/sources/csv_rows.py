"""CSV rows that DuckDB would misread: find them, and write copies without them.

DuckDB drops a row longer than its buffer and resumes inside it, so that one user's row becomes rows
of other users. Its reading of misplaced quotes depends on the previous row and on buffer
boundaries. So DuckDB reads a copy of such a file, without long rows and with regular quotes.

A line feed or a carriage return outside quotes ends a row. A quote at the beginning of a value,
after at most one space, opens; the next one closes; and another one in the same value opens again.
In a value that begins with another character, a quote is an ordinary character.

Quotes are *regular* if they enclose a whole value and are doubled inside it.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgrain import _validate

UTF8 = "utf-8"
#: Encodings of CSV files; the others have one byte per character, so no row affects another.
ENCODINGS = (UTF8, "latin-1", "windows-1252")
# Python's names of these.
_NAMES = ("utf-8", "iso8859-1", "cp1252")
#: Longest row that is read, in bytes without its end: half of DuckDB's buffer.
MAX_ROW_BYTES = 8 << 20
# Bytes per piece, small enough for the CPU cache.
_PIECE_BYTES = 1 << 19
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FEED, _RETURN, _QUOTE, _SPACE = b'\n\r" '
# States after a quote: inside quotes, after them, or in a value without quotes.
_INSIDE, _AFTER, _MIDDLE = range(3)
# Types of quotes: at the beginning of a value; elsewhere and the first of its value; in the same
# value as the previous quote. _NEXT is state × type → state.
_OPENING, _ORDINARY, _AGAIN = range(3)
_NEXT = (
    (_AFTER, _AFTER, _AFTER),
    (_INSIDE, _MIDDLE, _INSIDE),
    (_INSIDE, _MIDDLE, _MIDDLE),
)
# Shortest beginning of a value for each state; the last byte represents any ordinary byte.
_BEGINNINGS = (b'"', b'""', b"\xff")

_REGULAR = re.compile(rb'"(?:[^"]|"")*+"')

_Bytes = NDArray[np.uint8]
_Bools = NDArray[np.bool_]
_Words = NDArray[np.uint64]


def known_encoding(encoding: str) -> str:
    """Return the name of an encoding in :data:`ENCODINGS`, also for another name of it."""
    try:
        return ENCODINGS[_NAMES.index(codecs.lookup(encoding).name)]
    except (LookupError, TypeError, ValueError):
        return _validate.one_of(ENCODINGS, encoding=encoding)


def read_pieces(path: str, encoding: str = UTF8) -> Iterator[bytes]:
    """Yield a file's decompressed text as UTF-8 bytes, without a byte order mark."""
    pieces = _read_bytes(path)
    if encoding == UTF8:
        return pieces
    # An undefined byte stays invalid UTF-8, so its row is dropped and no other.
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
    return (decoder.decode(piece).encode(UTF8, "surrogateescape") for piece in pieces)


def _read_bytes(path: str) -> Iterator[bytes]:
    opener: Any = gzip.open if path.lower().endswith(".gz") else open
    try:
        with opener(Path(path), "rb") as file:
            # With the mark, quotes around the first name would seem misplaced.
            yield file.read(_PIECE_BYTES).removeprefix(_BYTE_ORDER_MARK)
            while part := file.read(_PIECE_BYTES):
                yield part
    except (EOFError, zlib.error) as error:
        raise OSError from error


@dataclass(frozen=True)
class MalformedLines:
    """Lines of a file that DuckDB would misread."""

    long_rows: tuple[tuple[int, int], ...] = ()  # (first byte, first byte of the next row)
    irregular_quotes: bool = False  # some quotes are not regular

    def __bool__(self) -> bool:
        return bool(self.long_rows) or self.irregular_quotes


def find_malformed(pieces: Iterable[bytes], delimiter: str) -> MalformedLines:
    """Find long rows and irregular quotes in the pieces of a file."""
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
    """Yield the bytes of a file without some spans in ascending order."""
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
    r"""A writer of rows with regular quotes.

    A value with an ordinary quote is enclosed in quotes. A row with characters after the quotes of
    a value, or with an unclosed quote, is ambiguous and dropped.
    """

    def __init__(self, delimiter: str) -> None:
        #: Number of dropped rows.
        self.dropped = 0
        self._splitter = RowSplitter(delimiter)
        separator = re.escape(delimiter.encode())
        outside, inside = rb'[^"\r\n' + separator + rb"]", rb"[^\r\n" + separator + rb"]"
        space = b"" if delimiter == " " else b" ?"
        # Quotes and the characters after them, or a value that begins with another character.
        quoted = space + rb'"[^"]*+"(?:' + outside + rb'*+"[^"]*+")*+' + outside + rb"*+"
        otherwise = rb"(?!" + space + rb'")'
        value = rb"(?:" + quoted + rb"|" + otherwise + inside + rb"*+)"
        self._value = re.compile(value)
        self._row = re.compile(value + rb"(?:" + separator + value + rb")*+[\r\n]")
        # A value that contains a quote, after a delimiter or line end.
        self._with_quote = re.compile(
            rb"(?<!" + inside + rb")(?:" + quoted + rb"|" + otherwise + outside + rb'*+"' + inside
            + rb"*+)"
        )  # fmt: skip

    def rows(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the rows of a file with regular quotes, several at once."""
        left = b""
        for piece in pieces:
            _, last = self._splitter.ends(piece)
            if last < 0:
                left += piece
                continue
            yield self._normalize_rows(left + piece[: last + 1])
            left = piece[last + 1 :]
        # The last row can lack its end.
        if self._row.fullmatch(left + b"\n"):
            yield self._normalize_row(left + b"\n")[:-1]
        else:
            self.dropped += 1

    def _normalize_rows(self, text: bytes) -> bytes:
        """Normalize complete rows, all at once if none is ambiguous."""
        ambiguous = False

        def normalize(match: re.Match[bytes]) -> bytes:
            nonlocal ambiguous
            regular = _regular(match.group())
            ambiguous |= regular is None
            return regular or b""

        whole = self._with_quote.sub(normalize, text)
        if not ambiguous:
            return whole
        return b"".join(self._normalize_row(row.group()) for row in self._row.finditer(text))

    def _normalize_row(self, row: bytes) -> bytes:
        values, at = [], 0
        while at < len(row):
            result = self._value.match(row, at)
            assert result is not None  # noqa: S101 - a row consists of values
            value = _regular(result.group())
            if value is None:
                self.dropped += 1
                return b""
            at = result.end() + 1
            values += [value, row[at - 1 : at]]
        return b"".join(values)


def _regular(value: bytes) -> bytes | None:
    """Return the value with regular quotes; None if its quotes are ambiguous."""
    if b'"' not in value:
        return value
    if not value.startswith((b'"', b' "')):
        return b'"' + value.replace(b'"', b'""') + b'"'
    inner = value.removeprefix(b" ")
    return inner if _REGULAR.fullmatch(inner) else None


class RowSplitter:
    """Finds the ends of rows, piece by piece."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter.encode()
        # Beginning of the value in which the next piece begins; only its state matters.
        self._value_start = b""
        #: True after irregular quotes.
        self.irregular = False
        self._same = np.zeros(0, dtype=np.bool_)

    @property
    def open(self) -> bool:
        """True if the text ends inside quotes so far."""
        return self._value_start == _BEGINNINGS[_INSIDE]

    def ends(self, piece: bytes) -> tuple[int, int]:
        """Return indices of the first and last row end in the next piece; −1 without one."""
        # Prefixed with the beginning of its first value, a piece begins outside quotes.
        whole = self._delimiter + self._value_start + piece
        ahead = len(whole) - len(piece)
        if b'"' not in whole:
            first, last = _first_and_last(whole)
            self._value_start = self._beginning(whole, b"")
        else:
            first, last = self._ends_outside(whole)
        return max(first - ahead, -1), max(last - ahead, -1)

    def _ends_outside(self, whole: bytes) -> tuple[int, int]:
        """Return the indices of the first and last row end outside quotes; −1 without one."""
        characters = np.frombuffer(whole, np.uint8)
        ends = self._bits(characters, _FEED)
        if b"\r" in whole:
            ends |= self._bits(characters, _RETURN)
        inside, state = self._inside(characters, ends | self._bits(characters, self._delimiter[0]))
        self._value_start = _BEGINNINGS[state]
        if state != _INSIDE:
            self._value_start = self._beginning(whole, self._value_start)
        return _lowest_and_highest(ends & ~inside)

    def _inside(self, characters: _Bytes, separators: _Words) -> tuple[_Words, int]:
        """Return the characters inside quotes and the last state; the text begins outside."""
        quotes = self._bits(characters, _QUOTE)
        inside = _prefix_parity(quotes)
        opening = quotes & _next(separators)
        # Fast path: every other quote opens a value or is the second of a doubled quote.
        if not np.any(quotes & inside & ~(opening | _next(quotes))):
            # The character after the last one is not known yet.
            closing = quotes & ~inside & ~_last_bit(len(characters))
            self.irregular |= bool(np.any(closing & ~_previous(separators | quotes)))
            return inside, _INSIDE if inside[-1] >> np.uint64(63) else _AFTER
        self.irregular = True
        opening |= quotes & _next(self._bits(characters, _SPACE) & _next(separators))
        if not np.any(opening):
            return opening, _MIDDLE
        toggling, state = _toggling_quotes(quotes, opening, separators)
        return _prefix_parity(toggling), state

    def _bits(self, characters: _Bytes, character: int) -> _Words:
        """Return one bit per character, set if it is this one, (n/64,), lowest first."""
        size = -(-len(characters) // 64) * 64
        # Reuse the buffer: allocation would take longer than the rest.
        if len(self._same) < size:
            self._same = np.zeros(size, dtype=np.bool_)
        np.equal(characters, character, out=self._same[: len(characters)])
        self._same[len(characters) : size] = False
        return _packed(self._same[:size])

    def _beginning(self, whole: bytes, default: bytes) -> bytes:
        """Return the beginning of the last value; the default if it contains the last quote."""
        last = max(whole.rfind(mark) for mark in (self._delimiter, b"\n", b"\r"))
        if last < whole.rfind(b'"'):
            return default
        value = whole[last + 1 : last + 3]
        return value if value in (b"", b" ") else _BEGINNINGS[_MIDDLE]


def _first_and_last(whole: bytes) -> tuple[int, int]:
    """Return indices of the first and last row end in a text without quotes, or −1."""
    first = [index for index in (whole.find(b"\n"), whole.find(b"\r")) if index >= 0]
    return min(first, default=-1), max(whole.rfind(b"\n"), whole.rfind(b"\r"))


def _toggling_quotes(quotes: _Words, opening: _Words, separators: _Words) -> tuple[_Words, int]:
    """Return the quotes that open or close, and the final state."""
    marks = _unpacked(quotes)
    indices = np.flatnonzero(marks)
    values = np.searchsorted(np.flatnonzero(_unpacked(separators)), indices)
    kinds = np.where(_unpacked(opening)[indices], _OPENING, _ORDINARY)
    kinds[np.diff(values, prepend=0) == 0] = _AGAIN
    states, state = [_MIDDLE], _MIDDLE
    for kind in kinds.tolist():
        state = _NEXT[state][kind]
        states.append(state)
    marks[indices] = np.diff(np.array(states) == _INSIDE)
    return _packed(marks), state


def _packed(bools: _Bools) -> _Words:
    return np.packbits(bools, bitorder="little").view("<u8")


def _unpacked(words: _Words) -> _Bools:
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)


def _next(words: _Words) -> _Words:
    """Shift all bits one position forward."""
    moved = words << np.uint64(1)
    moved[1:] |= words[:-1] >> np.uint64(63)
    return moved


def _previous(words: _Words) -> _Words:
    """Shift all bits one position back."""
    moved = words >> np.uint64(1)
    moved[:-1] |= words[1:] << np.uint64(63)
    return moved


def _last_bit(characters: int) -> _Words:
    """Return words with only the bit of the last of n characters set, (n/64,)."""
    words = np.zeros(-(-characters // 64), dtype=np.uint64)
    words[-1] = np.uint64(1) << np.uint64((characters - 1) % 64)
    return words


def _prefix_parity(words: _Words) -> _Words:
    """Return the prefix parity of bits, each bit included."""
    result = words.copy()
    for step in (1, 2, 4, 8, 16, 32):
        result ^= result << np.uint64(step)
    full = result >> np.uint64(63)
    # Invert a word if the previous words have an odd number of set bits.
    result[1:] ^= -np.bitwise_xor.accumulate(full)[:-1]
    return result


def _lowest_and_highest(words: _Words) -> tuple[int, int]:
    """Return the indices of the first and last set bit; −1 without one."""
    some = np.flatnonzero(words)
    if not len(some):
        return -1, -1
    low, high = int(words[some[0]]), int(words[some[-1]])
    first = int(some[0]) * 64 + (low & -low).bit_length() - 1
    return first, int(some[-1]) * 64 + high.bit_length() - 1

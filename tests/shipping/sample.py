"""The files of a small repository with tests that catch some bugs."""

MODULE = '''"""Sums."""

from functools import cache

FACTOR = 2


class Sum:
    @property
    def doubled(self) -> int:
        return FACTOR * once(1)

    def waits(self, left: int) -> int:
        while left > 0:
            left -= 1
        return left


@cache
def once(x: int) -> int:
    if x > 5:
        return x + 1
    else:
        y = x
    return y


def early(x: int) -> int:
    if x > 1:
        return x + 2
    return x


EARLY = early(2)
'''
TESTS = """
from dpgrain.room.sums import Sum, once

def test_doubled():
    assert Sum().doubled == 2

def test_large():
    assert once(9) == 10

def test_doubled_again():
    assert Sum().doubled == 2

def test_waits():
    assert Sum().waits(3) == 0

def test_red():
    assert once(1) == 7

def test_cluster(spark):
    assert once(9) == 10
"""
FIXTURES = """
import pytest

@pytest.fixture
def spark():
    return None
"""

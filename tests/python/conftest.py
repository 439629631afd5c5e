import dgemma
import pytest


@pytest.fixture(scope="session")
def model():
    """The pocket model, for all tests. One thread: tests run beside others."""
    with dgemma.Model(device='cpu', threads=1) as m:
        yield m

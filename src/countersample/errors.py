"""What can go wrong, by name. Every error of this package is a `CounterSampleError`."""


class CounterSampleError(Exception):
    """The base of every error raised on purpose; its text is one sentence for a person."""


class DataError(CounterSampleError, ValueError):
    """A file or an array with invalid content."""


class ParameterError(CounterSampleError, ValueError):
    """An argument that is not one of the values it may have."""

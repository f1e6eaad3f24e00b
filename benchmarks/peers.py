"""The readers that `load_letor` is measured against."""

import ctypes
import subprocess
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path


class _Shape(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_size_t), ("cols", ctypes.c_size_t))


def pytorchltr(folder):
    """Return pytorchltr 0.2.1's C parser as a function of a path.

    Its package no longer builds on current Python and NumPy, but the parser itself is one C file
    with no dependency: that file is taken from the source package and compiled as it is.
    """
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        "pytorchltr",
    ]
    subprocess.run([*pip, "--dest", folder, "pytorchltr==0.2.1"], check=True, capture_output=True)
    archive = next(Path(folder).glob("pytorchltr-*.tar.gz"))
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    header = next(Path(folder).glob("pytorchltr-*/**/svmrank_parser.h"))
    library = Path(folder) / "svmrank_parser.so"
    compiler = ["cc", "-O3", "-fPIC", "-shared", "-x", "c", header, "-o", library, "-lm"]
    subprocess.run(list(map(str, compiler)), check=True, capture_output=True)
    loaded = ctypes.CDLL(str(library))
    loaded.init_svmrank_parser()

    def read(path):
        values = ctypes.POINTER(ctypes.c_double)()
        labels = ctypes.POINTER(ctypes.c_int)()
        ids = ctypes.POINTER(ctypes.c_long)()
        shape = _Shape()
        status = loaded.parse_svmrank_file(
            str(path).encode(),
            *map(ctypes.byref, (values, shape, labels, ids)),
        )
        if status:
            raise RuntimeError(f"pytorchltr's parser gave status {status}")
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        for pointer in (values, labels, ids):
            free(ctypes.cast(pointer, ctypes.c_void_p))
        return shape.rows, shape.cols

    return read


def xgboost():
    """Return xgboost's text parser (all cores) as a function of a path."""
    import xgboost

    def read(path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            matrix = xgboost.DMatrix(f"{path}?format=libsvm", silent=True)
        return matrix.num_row(), matrix.num_col()

    return read


def scikit_learn():
    """Return scikit-learn's reader as a function of a path."""
    from sklearn.datasets import load_svmlight_file

    def read(path):
        features, _, _ = load_svmlight_file(str(path), query_id=True)
        return features.shape

    return read


def available():
    """Return the readers that can be had on this machine, by name, and why others cannot."""
    readers, missing = {}, {}
    folder = tempfile.mkdtemp(prefix="peers-")
    makers = {
        "pytorchltr 0.2.1 (C)": lambda: pytorchltr(folder),
        "xgboost": xgboost,
        "scikit-learn": scikit_learn,
    }
    for name, make in makers.items():
        try:
            readers[name] = make()
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            missing[name] = type(error).__name__
    return readers, missing

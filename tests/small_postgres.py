"""A PostgreSQL server of one's own: in a folder, heard by nobody but its socket in there."""

import io
import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from pyarrow import csv

SETTINGS = {
    "listen_addresses": "", "fsync": "off", "shared_buffers": "32MB", "max_connections": "5",
    "autovacuum": "off", "jit": "off",  # it compiles for minutes what takes seconds
}  # fmt: skip


class Postgres:
    """A running server; `run` has psql do what a script says."""

    def __init__(self, programs, folder):
        self._command = [
            str(programs / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1",
            f"--host={folder}", "--username=postgres", "--dbname=postgres",
        ]  # fmt: skip

    def run(self, script):
        """Return what a script prints; an error is an AssertionError with what the server said."""
        done = subprocess.run(
            self._command, input=script.encode(), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        return done.stdout.decode()

    def fill(self, table, names, kinds, rows):
        """Make a table of these columns and rows; a None is NULL."""
        told = ", ".join(f"{quoted(n)} {kind}" for n, kind in zip(names, kinds, strict=True))
        data = "".join("\t".join(map(_copied, row)) + "\n" for row in rows)
        self.run(
            f"DROP TABLE IF EXISTS {quoted(table)} CASCADE;\n"
            f"CREATE TABLE {quoted(table)} ({told});\n"
            f"COPY {quoted(table)} FROM STDIN;\n{data}\\.\n"
        )

    def read(self, query):
        """Return the rows of a query, as Arrow's table."""
        told = self.run(f"COPY ({query}) TO STDOUT WITH (FORMAT csv, HEADER);")
        options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        return csv.read_csv(io.BytesIO(told.encode()), convert_options=options)


def _copied(value):
    return "\\N" if value is None else str(value).replace("\\", "\\\\")


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def serving(programs):
    """Run a server that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path has at most 107 bytes
    as_user = []
    if os.getuid() == 0:  # as root it refuses to run
        user = next(u for u in pwd.getpwall() if u.pw_name in {"postgres", "nobody"})
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]

    def call(program, *arguments):
        command = [*as_user, str(programs / program), f"--pgdata={folder}/data", *arguments]
        with (folder / "said").open("ab") as said:
            done = subprocess.run(command, cwd=folder, stdout=said, stderr=said, check=False)
        assert done.returncode == 0, (folder / "said").read_text()[-2000:]

    try:
        call("initdb", "--auth=trust", "--no-sync", "--username=postgres", "--encoding=UTF8",
             "--locale=C")  # fmt: skip
        options = " ".join(f"-c {name}={value!r}" for name, value in SETTINGS.items())
        call("pg_ctl", "start", "--wait", "--silent", f"--options=-k {folder} {options}")
        try:
            yield Postgres(programs, folder)
        finally:
            call("pg_ctl", "stop", "--mode=immediate", "--silent")
    finally:
        shutil.rmtree(folder)

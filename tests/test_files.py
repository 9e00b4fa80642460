"""Every kind of file that a table may come in gives the same table, and its bad variants are refused in a sentence."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest

import vcuda
from vcuda.data import text_files
from vcuda.data.copies import ArrowCopy, arrow_column
from vcuda.data.formats import FILE_KINDS
from vcuda.data.packing import PACKINGS
from vcuda.data.reading import as_dataset
from vcuda.data.streaming import StreamedTable, open_table
from vcuda.errors import ConfigError, DataError

RNG = np.random.default_rng(0)
ROWS = 60
FRAME = pd.DataFrame(
    {
        "weight": RNG.normal(70, 9, ROWS).round(3),
        "visits": RNG.integers(20, 80, ROWS),
        "city": RNG.choice(["Rome", "Oslo", "Bern"], ROWS),
        "cost": RNG.normal(size=ROWS).round(4),
    }
)
TEXT = FRAME.to_csv(index=False).encode()


class Kind(NamedTuple):
    """A kind of file: how it is written, what is given to read it, and its bad variants with what messages say."""

    name: str
    write: Callable[[Path], object]
    given: str = ""  # in place of the name
    part: Mapping[str, str] = MappingProxyType({})
    wrong_part: tuple[str, str] | None = None
    package: tuple[str, str] | None = None  # what is imported, and the extra that has it
    rubbish: str = "cannot be read"


def text(separator: str = ",", **how: object) -> Callable[[Path], object]:
    return lambda path: FRAME.to_csv(path, index=False, sep=separator, **how)


def content(make: Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(make())


def spaced(path: Path) -> None:
    rows = [FRAME.columns.tolist(), *FRAME.to_numpy().tolist()]
    path.write_text("\n".join("  ".join(f"{cell!s:>8}" for cell in row) for row in rows) + "\n")


def of_r(separator: str) -> Callable[[Path], object]:
    """As write.table of R has it: text in quotes, rows numbered, and no name above their numbers."""

    def write(path: Path) -> None:
        names = separator.join(f'"{name}"' for name in FRAME.columns)
        rows = FRAME.assign(city=[f'"{city}"' for city in FRAME["city"]]).to_numpy().tolist()
        lines = [separator.join([f'"{number}"', *map(str, row)]) for number, row in enumerate(rows, start=1)]
        path.write_text("\n".join([names, *lines]) + "\n")

    return write


def workbook(engine: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with pd.ExcelWriter(path, engine=engine) as book:
            FRAME.to_excel(book, sheet_name="Patients", index=False)
            pd.DataFrame({"note": ["nothing here"]}).to_excel(book, sheet_name="About", index=False)

    return write


def after_a_letter(path: Path) -> None:
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        pd.DataFrame({"note": ["for you"]}).to_excel(book, sheet_name="About", index=False)
        FRAME.to_excel(book, sheet_name="Patients", index=False, startrow=2)


def second_sheet(path: Path) -> None:
    with pd.ExcelWriter(path, engine="openpyxl") as book:
        pd.DataFrame({"other": [1.5], "numbers": [2.5]}).to_excel(book, sheet_name="About", index=False)
        FRAME.to_excel(book, sheet_name="Patients", index=False)


def json_as(**how: object) -> Callable[[Path], object]:
    return lambda path: FRAME.to_json(path, **how)


def sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    FRAME.to_sql("orders", connection, index=False)
    FRAME.head(3).to_sql("others", connection, index=False)
    connection.close()


def duck(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.register("frame", FRAME)
        connection.execute("create table orders as select * from frame")
        connection.execute("create table others as select * from frame limit 3")


def archive(**members: bytes) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, inside in members.items():
                file.writestr(name.replace("_", "."), inside)

    return write


def excel_bytes(folder: str = os.devnull) -> bytes:
    import io

    sink = io.BytesIO()
    FRAME.to_excel(sink, index=False)
    return sink.getvalue()


QUERY = {"query": "select * from orders"}
EXCEL, ODS, STATS = ("openpyxl", "excel"), ("odf", "excel"), ("pyreadstat", "stats")
ONE_COLUMN = "only one column"
KINDS = {
    "csv": Kind("t.csv", text(), rubbish=ONE_COLUMN),
    "tsv": Kind("t.tsv", text("\t"), rubbish=ONE_COLUMN),
    "commas in a tsv": Kind("t.tsv", text(","), rubbish=ONE_COLUMN),
    "txt with tabs": Kind("t.txt", text("\t"), rubbish=ONE_COLUMN),
    "txt with semicolons": Kind("t.txt", text(";"), rubbish=ONE_COLUMN),
    "txt with bars": Kind("t.txt", text("|"), rubbish=ONE_COLUMN),
    "txt with spaces": Kind("t.txt", text(" "), rubbish=ONE_COLUMN),
    "txt in aligned columns": Kind("t.dat", spaced, rubbish=ONE_COLUMN),
    "Windows-1252": Kind("t.csv", text(encoding="cp1252"), rubbish=ONE_COLUMN),
    "UTF-16": Kind("t.txt", text("\t", encoding="utf-16"), rubbish=ONE_COLUMN),
    "a saved index": Kind("t.csv", lambda path: FRAME.to_csv(path), rubbish=ONE_COLUMN),
    "write.table of R": Kind("t.txt", of_r(" "), rubbish=ONE_COLUMN),
    "write.table of R, with commas": Kind("t.csv", of_r(","), rubbish=ONE_COLUMN),
    "csv.gz": Kind("t.csv.gz", content(lambda: gzip.compress(TEXT))),
    "csv.bz2": Kind("t.csv.bz2", content(lambda: bz2.compress(TEXT))),
    "csv.xz": Kind("t.csv.xz", content(lambda: lzma.compress(TEXT))),
    "csv.zst": Kind("t.csv.zst", content(lambda: pa.Codec("zstd").compress(TEXT, asbytes=True))),
    "zip": Kind("t.zip", archive(t_csv=TEXT)),
    "a file of a zip": Kind(
        "t.zip",
        archive(t_csv=TEXT, u_csv=TEXT),
        given="t.zip#t.csv",
        wrong_part=("t.zip#v.csv", "no table 'v.csv' in the archive"),
    ),
    "Excel in a zip": Kind("t.zip", lambda path: archive(t_xlsx=excel_bytes())(path), package=EXCEL),
    "parquet": Kind("t.parquet", lambda path: FRAME.to_parquet(path, index=False)),
    "feather": Kind("t.feather", lambda path: FRAME.to_feather(path)),
    "xlsx": Kind("t.xlsx", workbook("openpyxl"), package=EXCEL),
    "xlsx, the sheet with a table": Kind("t.xlsx", after_a_letter, package=EXCEL),
    "xlsx, a sheet": Kind(
        "t.xlsx",
        second_sheet,
        given="t.xlsx#Patients",
        wrong_part=("t.xlsx#Patient", "no sheet 'Patient' (did you mean 'Patients'?)"),
        package=EXCEL,
    ),
    "xlsx, --sheet": Kind("t.xlsx", second_sheet, part={"sheet": "patients"}, package=EXCEL),
    "ods": Kind(
        "t.ods",
        workbook("odf"),
        wrong_part=("t.ods#Sheet9", "the sheets are 'Patients' and 'About'"),
        package=ODS,
    ),
    "json, records": Kind("t.json", json_as(orient="records"), rubbish="is not JSON"),
    "json, columns": Kind("t.json", json_as(), rubbish="is not JSON"),
    "json, split": Kind("t.json", json_as(orient="split"), rubbish="is not JSON"),
    "json, with a schema": Kind("t.json", json_as(orient="table", index=False), rubbish="is not JSON"),
    "json lines": Kind("t.jsonl", json_as(orient="records", lines=True), rubbish="is not JSON"),
    "json lines, called json": Kind("t.json", json_as(orient="records", lines=True), rubbish="is not JSON"),
    "json.gz": Kind("t.json.gz", content(lambda: gzip.compress(FRAME.to_json(orient="records").encode()))),
    "sav": Kind("t.sav", lambda path: pyreadstat.write_sav(FRAME, path), package=STATS),
    "zsav": Kind("t.zsav", lambda path: pyreadstat.write_sav(FRAME, path, compress=True), package=STATS),
    "dta": Kind("t.dta", lambda path: pyreadstat.write_dta(FRAME, path), package=STATS),
    "dta of pandas": Kind("t.dta", lambda path: FRAME.to_stata(path, write_index=False), package=STATS),
    "xpt": Kind("t.xpt", lambda path: pyreadstat.write_xport(FRAME, path), package=STATS),
    "sqlite": Kind(
        "t.sqlite", sqlite, given="t.sqlite#orders", wrong_part=("t.sqlite#order", "did you mean 'orders'?")
    ),
    "sqlite, a query": Kind("t.db", sqlite, part=QUERY),
    "duckdb": Kind(
        "t.duckdb",
        duck,
        given="t.duckdb#orders",
        wrong_part=("t.duckdb#order", "did you mean 'orders'?"),
        package=("duckdb", "sql"),
    ),
    "duckdb, a query": Kind("t.db", duck, part=QUERY, package=("duckdb", "sql")),
    "an address": Kind(
        "t.sqlite",
        sqlite,
        given="sqlite:///t.sqlite#orders",
        wrong_part=("sqlite:///t.sqlite#order", "did you mean 'orders'?"),
        package=("sqlalchemy", "sql"),
        rubbish="the database refuses",
    ),
    "an address, a query": Kind(
        "t.sqlite",
        sqlite,
        given="sqlite:///t.sqlite",
        part=QUERY,
        wrong_part=("nosuch://host/shop", "no address of a database"),
        package=("sqlalchemy", "sql"),
        rubbish="the database refuses",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(kind: Kind) -> str:
    return kind.given or kind.name


def flags(kind: Kind) -> list[str]:
    return [word for option, value in kind.part.items() for word in (f"--{option}", value)]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_same_table(name, folder):
    kind = KINDS[name]
    kind.write(Path(kind.name))
    data = as_dataset(given(kind), **kind.part)
    known = as_dataset(FRAME)
    assert (data.names, data.kinds, data.categories) == (known.names, known.kinds, known.categories)
    np.testing.assert_array_equal(data.values, known.values)
    assert data.fingerprint == known.fingerprint
    assert data.source == given(kind)
    assert (
        open_table(given(kind), part=vcuda.data.conversion.kinds.TablePart(**kind.part)).fingerprint == data.fingerprint
    )


@pytest.mark.parametrize("name", KINDS)
def test_bad_variants_are_refused_in_a_sentence(name, folder, run, monkeypatch):
    kind = KINDS[name]
    path, table = Path(kind.name), given(kind)

    def refused(words: str, argument: str = table) -> None:
        answer = run("check", argument, *flags(kind))
        assert answer.code == 2, answer
        assert answer.err.startswith("vcuda: "), answer.err
        assert words in " ".join(answer.err.split()), answer.err

    if "://" not in table:
        refused("there is no such file")
    path.write_bytes(b"")
    refused(
        "holds no table" if "://" in table and not kind.part else "refuses" if "://" in table else "the file is empty"
    )
    path.write_bytes(b"Dear reader\nthis is no such file at all\nbut a letter to somebody\n" * 20)
    refused(kind.rubbish)
    path.unlink()
    kind.write(path)
    if kind.wrong_part is not None:
        refused(kind.wrong_part[1], kind.wrong_part[0])
    whole = path.read_bytes()
    if "." in kind.name and kind.name.endswith((".gz", ".bz2", ".xz", ".zst", ".zip", ".xlsx", ".ods", ".sav", ".dta")):
        path.write_bytes(whole[: len(whole) // 2])
        refused("cannot be read")
        path.write_bytes(whole)
    if kind.package is not None:
        monkeypatch.setitem(sys.modules, kind.package[0], None)
        refused(f"pip install 'vcuda[{kind.package[1]}]'")


def test_sas_files_go_to_their_reader(folder, monkeypatch):
    # Nothing but SAS writes such files, so that another format of SAS stands in for the content.
    pyreadstat.write_xport(FRAME, "t.sas7bdat")
    with pytest.raises(DataError, match=r"t\.sas7bdat: the file cannot be read"):
        as_dataset("t.sas7bdat")
    monkeypatch.setattr(pyreadstat, "read_sas7bdat", pyreadstat.read_xport)
    assert as_dataset("t.sas7bdat").fingerprint == as_dataset(FRAME).fingerprint


# Addresses and standard input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["https://example.org/t.csv", "s3://bucket/t.parquet", "file:///t.csv", Path("http://example.org/t.csv")]
)
def test_addresses_of_the_network_are_refused(address, folder, run):
    answer = run("check", address)
    assert answer.code == 2
    assert "vcuda fetches nothing from the network: download the file first" in " ".join(answer.err.split())


def test_the_password_of_a_database_is_never_shown(folder, run):
    for address in ("sqlite://me:s3cret@host/t.db#x", "nosuch://me:s3cret@host/t.db"):
        answer = run("check", address)
        assert answer.code == 2
        assert "me:***@host" in answer.err
        assert "s3cret" not in answer.out + answer.err


@pytest.mark.slow
def test_the_password_of_a_database_is_not_stored(folder, run, monkeypatch):
    def rows(address, query, table, copy):
        assert "s3cret" in address
        copy.add(["weight", "cost"], [arrow_column(FRAME[name].tolist()) for name in ("weight", "cost")])
        return []

    monkeypatch.setattr("vcuda.data.sources.read_address", rows)
    address = "postgresql://me:s3cret@host/shop#orders"
    for command in (["check"], ["fit", "--model", "linear", "--samples", "5"]):
        answer = run(*command, address)
        assert answer.code == 0
        assert "postgresql://me:***@host/shop#orders" in answer.out
        assert "s3cret" not in answer.out + answer.err
    assert not any(b"s3cret" in path.read_bytes() for path in Path("run").rglob("*") if path.is_file())


def test_a_query_changes_nothing(folder, run):
    for path, write in (("t.sqlite", sqlite), ("t.duckdb", duck)):
        write(Path(path))
        answer = run("check", path, "--query", "delete from orders")
        assert answer.code == 2, answer
        assert as_dataset(f"{path}#orders").n == ROWS
    answer = run("check", "sqlite:///t.sqlite", "--query", "delete from orders")
    assert (answer.code, "begins with select" in " ".join(answer.err.split())) == (2, True)
    assert as_dataset("t.sqlite#orders").n == ROWS


def test_views_of_a_duckdb_file_read_no_other_file(folder):
    Path("secret.csv").write_bytes(TEXT)
    with duckdb.connect("t.duckdb") as connection:
        connection.execute("create view v as select * from read_csv('secret.csv')")
    with pytest.raises(DataError, match="Permission Error"):
        as_dataset("t.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["csv", "txt with spaces", "csv.bz2", "xlsx", "ods", "json lines", "sav", "sqlite, a query"]
)
def test_standard_input_may_be_any_of_them(name, folder):
    kind = KINDS[name]
    kind.write(Path(kind.name))
    command = [sys.executable, "-m", "vcuda", "check", "-", "--json", *flags(kind)]
    done = subprocess.run(command, input=Path(kind.name).read_bytes(), capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert (found["source"], found["rows"]) == ("standard input", ROWS)
    assert [column["name"] for column in found["columns"]] == FRAME.columns.tolist()


def test_standard_input_with_nothing_is_refused(folder):
    done = subprocess.run(
        [sys.executable, "-m", "vcuda", "check", "-"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("vcuda: standard input: the file is empty")


# Options -------------------------------------------------------------------------------------------------------


def test_options_that_do_not_go_with_the_table_are_refused(folder):
    Path("t.csv").write_bytes(TEXT)
    sqlite(Path("t.sqlite"))
    for table in ("t.csv", FRAME, "sachs", as_dataset(FRAME)):
        with pytest.raises(ConfigError, match=r"sheet= .* chooses a sheet"):
            as_dataset(table, sheet="x")
        with pytest.raises(ConfigError, match=r"query= .* asks a database"):
            open_table(table, part=vcuda.data.conversion.kinds.TablePart(query="select 1"))
    with pytest.raises(ConfigError, match="leave out one of them"):
        as_dataset("t.sqlite#orders", query="select * from others")
    with pytest.raises(DataError, match="the tables 'orders' and 'others': choose one"):
        as_dataset("t.sqlite")
    with pytest.raises(ConfigError, match="header=False"):
        as_dataset("t.sqlite#orders", header=False)
    with pytest.raises(ConfigError, match="query must be a text"):
        vcuda.fit("t.sqlite", query=" ")


def test_a_file_whose_name_has_the_sign_is_taken_as_it_is(folder):
    Path("t.csv#1.csv").write_bytes(TEXT)
    assert as_dataset("t.csv#1.csv").n == ROWS


@pytest.mark.slow
def test_a_fit_says_how_to_repeat_itself(folder, run):
    sqlite(Path("t.sqlite"))
    query = "select weight, cost, visits from orders"
    options = ["--query", query, "--model", "linear", "--no-report", "-o", "run"]
    assert run("fit", "t.sqlite", *options).code == 0
    posterior = vcuda.Posterior.load("run")
    from vcuda.outputs.reproduction import python_lines, shell_line

    assert "query='select weight, cost, visits from orders'," in "".join(python_lines(posterior))
    assert "vcuda fit t.sqlite" in shell_line(posterior)
    assert "--query 'select weight" in shell_line(posterior)


# Larger than memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "csv.bz2",
        "csv.xz",
        "csv.zst",
        "UTF-16",
        "a saved index",
        "xlsx",
        "json lines",
        "sav",
        "sqlite, a query",
        "duckdb",
        "an address",
    ],
)
def test_tables_of_numbers_are_streamed_from_all_of_them(name, folder):
    kind = KINDS[name]
    kind.write(Path(kind.name))
    from vcuda.data.columns import ColumnChoice

    part, choice = vcuda.data.conversion.kinds.TablePart(**kind.part), ColumnChoice.of(None, ["city"])
    known = open_table(FRAME.drop(columns="city"))
    found = open_table(given(kind), part=part, streamed=True, choice=choice)
    assert isinstance(found, StreamedTable)
    assert (found.names, found.n, found.source) == (known.names, known.n, given(kind))
    np.testing.assert_allclose(found.mean, known.mean)
    if name == "a saved index":
        assert "was left out" in found.notes[0]


def test_copies_are_removed_when_they_are_read(folder, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(folder / "temporary"))
    (folder / "temporary").mkdir()
    sqlite(Path("t.sqlite"))
    as_dataset("t.sqlite#orders")
    open_table("t.sqlite#orders")
    with pytest.raises(DataError):
        as_dataset("t.sqlite#nothing")
    with pytest.raises(DataError):
        as_dataset("t.sqlite", query="select weight from orders")
    assert list((folder / "temporary").iterdir()) == []


def test_a_copy_takes_wider_types_as_they_come(tmp_path):
    copy = ArrowCopy(tmp_path, "a table")
    copy.add(["a", "b", "c"], [arrow_column([1, 2]), arrow_column([None, None]), arrow_column([True, False])])
    copy.add(["a", "b", "c"], [arrow_column([1.5, None]), arrow_column([3, 4]), arrow_column([1, 0])])
    copy.add(
        ["a", "b", "c", "d"],
        [arrow_column([2, 3]), arrow_column(["x", "y"]), arrow_column([2.5, 0]), arrow_column([5, 6])],
    )
    with pa.memory_map(str(copy.finish())) as file:
        table = pa.ipc.open_file(file).read_all()
    assert [str(kind) for kind in table.schema.types] == ["double", "string", "double", "int64"]
    assert table.column("a").to_pylist() == [1.0, 2.0, 1.5, None, 2.0, 3.0]
    assert table.column("b").to_pylist() == [None, None, "3", "4", "x", "y"]
    assert table.column("d").to_pylist() == [None, None, None, None, 5, 6]


def test_a_copy_that_the_disk_has_no_room_for_is_refused(folder, monkeypatch):
    sqlite(Path("t.sqlite"))
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(DataError, match=r"t\.sqlite: a copy of the table would take more than"):
        as_dataset("t.sqlite#orders")


def test_rows_without_end_are_refused(folder, monkeypatch):
    monkeypatch.setattr("vcuda.data.copies.LEAST_ROOM", 1 << 20)
    connection = sqlite3.connect("t.sqlite")
    rows = "with recursive r(a, b) as (select 1, 2 union all select a + 1, b * 7 % 5 from r) select * from r"
    connection.execute(f"create view v as {rows}")
    connection.close()
    with pytest.raises(DataError, match="more than such a file should hold"):
        as_dataset("t.sqlite")


# Statistics packages -------------------------------------------------------------------------------------------


def survey(**how: object) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "age": np.where(np.arange(ROWS) == 5, 99, RNG.integers(18, 80, ROWS)).astype(float),
            "sex": RNG.integers(1, 3, ROWS).astype(float),
            "agree": RNG.integers(1, 6, ROWS).astype(float),
            "region": RNG.integers(1, 4, ROWS).astype(float),
            "income": RNG.normal(size=ROWS),
        }
    )


LABELS = {
    "age": {99: "refused"},
    "sex": {1: "male", 2: "female"},
    "agree": {1: "not at all", 2: "little", 3: "so so", 4: "rather", 5: "fully"},
    "region": {1: "west", 2: "east", 3: "middle", 4: "abroad"},
}


@pytest.mark.parametrize("ending", ["sav", "dta"])
def test_value_labels_become_labels(ending, folder):
    frame, path = survey(), f"t.{ending}"
    measures = {"agree": "ordinal", "region": "nominal"}
    if ending == "sav":
        pyreadstat.write_sav(frame, path, variable_value_labels=LABELS, variable_measure=measures)
    else:
        whole = frame.astype(dict.fromkeys(LABELS, "int32"))
        pyreadstat.write_dta(whole, path, variable_value_labels=LABELS)
    data = as_dataset(path)
    assert data.kinds == ("number", "yes/no", "ordered" if ending == "sav" else "label", "label", "number")
    assert data.categories[1] == ("male", "female")
    assert data.categories[2] == tuple(LABELS["agree"].values())  # in the order of their codes
    assert data.categories[3] == ("west", "east", "middle")
    np.testing.assert_array_equal(data.values[:, 2], frame["agree"] - 1)
    assert "Column 'age' has labels for some values alone, such as 99 ('refused')" in data.notes[0]
    ordered = as_dataset(path, kinds={"agree": "ordered"}, missing_values=[99], missing="keep")
    assert ordered.categories[2] == data.categories[2]
    assert int(ordered.missing.sum()) == 1


# Workbooks -----------------------------------------------------------------------------------------------------


def rows_of_workbook(path: str, rows: list[list[object]]) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def test_a_sheet_as_people_make_it(folder):
    numbers = [
        [k, k * k % 7, f"x{k % 2}", None if k == 3 else k / 2, "#N/A" if k == 4 else k % 5 / 4] for k in range(12)
    ]
    rows = [["Figures of the year"], [], ["k", "square", "group", " half ", "rest"], *numbers, [], [None]]
    rows_of_workbook("t.xlsx", rows)
    data = as_dataset("t.xlsx", missing="keep", kinds={"k": "number"})
    assert data.names == ("k", "square", "group", "half", "rest")
    assert data.n == 12
    assert np.argwhere(data.missing).tolist() == [[3, 3], [4, 4]]
    assert "The first row of the sheet above the names were left out" in data.notes[0].replace("was", "were")
    rows_of_workbook("t.xlsx", [["a", "b"], *([k, k % 3, "aside"] for k in range(6))])
    with pytest.raises(DataError, match="column 3 holds 'aside' and has no name"):
        as_dataset("t.xlsx")
    rows_of_workbook("t.xlsx", [["a", "b", "a"], *([k, k % 3, k] for k in range(6))])
    with pytest.raises(DataError, match="the name 'a' is used by columns 1 and 3"):
        as_dataset("t.xlsx")
    rows_of_workbook("t.xlsx", [[k, k % 3, k * 1.5] for k in range(6)])
    with pytest.raises(DataError, match=r"first row of the sheet 'Sheet' holds only numbers \('0', '0' and '0'\)"):
        as_dataset("t.xlsx")
    rows_of_workbook("t.xlsx", [])
    with pytest.raises(DataError, match=r"t\.xlsx: the workbook is empty"):
        as_dataset("t.xlsx")


def test_text_of_a_workbook_that_is_numbers_is_numbers(folder):
    rows_of_workbook("t.xlsx", [["a", "b"], *([f"{k * k % 11},5", f"${k}.25"] for k in range(12))])
    data = as_dataset("t.xlsx")
    np.testing.assert_array_equal(data.values[:, 0], [k * k % 11 + 0.5 for k in range(12)])
    np.testing.assert_array_equal(data.values[:, 1], [k + 0.25 for k in range(12)])


def test_all_faults_of_a_copy_are_listed_by_the_name_that_was_given(folder, run):
    rows_of_workbook("t.xlsx", [["a", "b", "c"], *([k, k % 3 + 0.5, k * 1.5] for k in range(12)), ["no", "why", 1]])
    answer = run("check", "t.xlsx")
    assert answer.code == 2
    said = " ".join(answer.err.split())
    assert said.count("vcuda: t.xlsx: data row 13 of column") == 2


# JSON ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"a": 1, "b": 2}, 5]', "record 2 is the value '5'"),
        ('{"a": [1, 2], "b": [1]}', "column 'a' has 2 cells and column 'b' 1"),
        ('{"a": 1}', "holds an object with the keys 'a'"),
        ("[" * 100_000, "nested too deeply"),
        ('[["a", "b"], [1, 2], [3]]', "row 2 has 1 cells for 2 names"),
        ('{"a": 1, "b": 2}\n{"a": 1, "b":\n', "line 2 is not JSON"),
        ("[]", "the table has no columns"),
        ("null", "the file holds nothing"),
        ('[{"a": {"x": 1}, "b": 1.5}' + ', {"a": {"x": 1}, "b": 2}' * 5 + "]", "column 'a' holds values of type list"),
    ],
)
def test_json_that_is_no_table_is_refused(text, words, folder):
    Path("t.json").write_text(text)
    with pytest.raises(DataError) as refused:
        as_dataset("t.json")
    assert words in str(refused.value)


def test_records_with_different_names_and_inside_an_answer(folder):
    records = [{"a": k, "b": k % 3 / 2} | ({"c": k * k % 7} if k % 2 else {}) for k in range(30)]
    Path("t.json").write_text(json.dumps({"status": "ok", "results": records}))
    data = as_dataset("t.json", missing="keep", kinds={"a": "number"})
    assert data.names == ("a", "b", "c")
    assert int(data.missing.sum()) == 15


# Text ----------------------------------------------------------------------------------------------------------


def test_windows_letters_are_read_with_a_note(folder):
    frame = FRAME.assign(größe=RNG.choice(["größer", "kleiner €"], ROWS))
    frame.to_csv("t.csv", index=False, encoding="cp1252")
    data = as_dataset("t.csv")
    assert data.categories[-1] == ("größer", "kleiner €")
    assert "was read as Windows-1252" in data.notes[0]
    frame.to_csv("t.csv", index=False)
    assert as_dataset("t.csv").notes == data.notes[1:]


def test_text_that_is_really_something_else_says_so(folder):
    workbook("openpyxl")(Path("t.xlsx"))
    Path("t.xlsx").rename("t.csv")
    with pytest.raises(DataError, match=r"not text, whatever its ending says\): if it is a \.xlsx file, give it that"):
        as_dataset("t.csv")


STYLES = {
    "decimal commas": (";", ["1,5", "2,25", "-3,0"], [1.5, 2.25, -3.0], "a comma is the decimal mark"),
    "points between thousands": (";", ["1.257,30", "2,25", "3.000"], [1257.3, 2.25, 3000.0], "marks between thousands"),
    "commas between thousands": (
        "\t",
        ["1,257.30", "2.25", "3,000"],
        [1257.3, 2.25, 3000.0],
        "marks between thousands",
    ),
    "spaces between thousands": (";", ["1 257,30", "2,25", "3\u00a0000,0"], [1257.3, 2.25, 3000.0], "decimal mark"),
    "currency": (",", ["$1.30", "-$2", "$ 7"], [1.3, -2.0, 7.0], "the sign $ was left out"),
    "euros": (";", ["1,30 €", "2 €", "1.000 €"], [1.3, 2.0, 1000.0], "the sign € was left out; a comma"),
    "per cent": (",", ["1.5%", "2 %", "0"], [1.5, 2.0, 0.0], "per cent signs were left out"),
    "accounting": (",", ["(1.5)", "2", "3"], [-1.5, 2.0, 3.0], ""),
    "open, after a semicolon": (";", ["1,250", "2,375", "3,500"], [1.25, 2.375, 3.5], "a comma is the decimal mark"),
    "open, after a tab": ("\t", ["1,250", "2,375", "3,500"], [1250.0, 2375.0, 3500.0], "marks between thousands"),
}


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("streamed", [False, True])
def test_numbers_as_people_write_them(name, streamed, folder):
    separator, cells, values, words = STYLES[name]
    lines = [f"{k * k % 11}{separator}{cells[k % 3]}" for k in range(30)]
    Path("t.csv").write_text("\n".join([f"a{separator}b", *lines]), encoding="utf-8")
    if streamed and name.startswith("open"):
        with pytest.raises(DataError, match="what their marks mean shows only in all rows"):
            vcuda.data.streaming.passes.gather("t.csv")
        return
    data = open_table("t.csv", streamed=streamed)
    assert isinstance(data, StreamedTable) == streamed
    found = data.sample.values if streamed else data.values
    np.testing.assert_array_equal(found[:, 1], [values[k % 3] for k in range(30)])
    assert any(words in note for note in data.notes) or not words


def test_a_point_beside_decimal_commas_stands_between_thousands(folder):
    lines = [f"{k},5;{1 + k % 3}.{k % 10}50;{k * k % 7}.5" for k in range(30)]
    Path("t.csv").write_text("\n".join(["a;b;c", *lines]))
    data = as_dataset("t.csv")
    np.testing.assert_array_equal(data.values[:, 1], [1000 * (1 + k % 3) + 100 * (k % 10) + 50 for k in range(30)])
    np.testing.assert_array_equal(data.values[:, 2], [k * k % 7 + 0.5 for k in range(30)])
    with pytest.raises(DataError, match="column 'a' has decimal commas, and column 'b' points"):
        vcuda.data.streaming.passes.gather("t.csv")


def test_another_style_further_down_is_not_streamed(folder, monkeypatch):
    monkeypatch.setattr("vcuda.data.streaming.streams.FEWEST_BLOCK_ROWS", 10)
    monkeypatch.setattr("vcuda.data.streaming.streams.MOST_BLOCK_ROWS", 10)
    for late in ("5,5", "5%"):
        Path("t.csv").write_text("\n".join(["a;b", *(f"{k};{k % 7}" for k in range(40)), *[f"1;{late}"] * 20]))
        with pytest.raises(DataError):
            vcuda.data.streaming.passes.gather("t.csv")


def test_a_saved_index_is_left_out(folder, run):
    FRAME.to_csv("t.csv")
    pd.read_csv("t.csv").to_csv("u.csv")  # once more: two of them
    for table in ("t.csv", "u.csv", pd.read_csv("t.csv")):
        data = as_dataset(table)
        assert data.names == tuple(FRAME.columns)
        assert "as a row index that was saved with a table" in data.notes[0]
    with pytest.raises(DataError, match=r"save the table without it \(pandas: index=False"):
        as_dataset("t.csv", strict=True)
    # What somebody names is a variable.
    assert as_dataset(pd.read_csv("t.csv"), columns=["Unnamed: 0", "cost"], kinds={"Unnamed: 0": "number"}).d == 2


@pytest.mark.parametrize(
    ("lines", "separator"),
    [
        (["length, cm;weight", "1,5;2", "2,5;3"], ";"),
        (["1,5;2,5", "2,5;3,5"], ";"),
        (['"a;b",c', "1,2", "2,3"], ","),
        (["a,b", "x;y,1", "z;w,2"], ","),
        (["name\tnote", "a, b\tc", "d\te"], "\t"),
        (["a|b|c", "1|2|3"], "|"),
        (["a,b,c", "1,2"], ","),
    ],
)
def test_what_separates_cells_is_found(lines, separator, folder):
    Path("t.csv").write_text("\n".join(lines))
    assert text_files.text_format(Path("t.csv")).separator == separator


def test_rows_keep_their_lines_where_spaces_become_tabs(folder):
    Path("t.txt").write_text('a  b\n\n1  2.5\n2  "3"\n' + "3   x4.5\n" + "4  5.5\n 5  6.5\n6 7.5 \n")
    with pytest.raises(DataError, match=r"t\.txt: data row 3 \(line 5 of the file\) of column 'b' holds 'x4.5'"):
        as_dataset("t.txt")


# The page ------------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parent.parent / "docs" / "files.md"
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_page_runs_and_prints_what_it_shows(folder, capsys):
    scope: dict = {}
    for code, shown in BLOCKS:
        exec(compile(code, str(PAGE), "exec"), scope)
        assert capsys.readouterr().out.split() == shown.split()


def test_the_page_lists_every_ending():
    text = PAGE.read_text(encoding="utf-8")
    assert [ending for ending in (*FILE_KINDS, *PACKINGS, ".zip") if f"`{ending}`" not in text] == []

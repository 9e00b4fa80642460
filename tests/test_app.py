"""The server of ``vcuda app``: who may ask, what is stored where, what is answered. The page: test_app_browser.py."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from test_hostile_outputs import NAMES, WORDS, hostile_run
from test_import import HEAVY, modules_after

import vcuda
from vcuda.app import answers
from vcuda.app.folder import Folder, safe_name
from vcuda.app.guard import HEADERS
from vcuda.app.jobs import Jobs
from vcuda.app.server import App, application
from vcuda.app.workers import RefusedError, Workers
from vcuda.errors import ConfigError, DataError, RunError, VcudaError

RUN = Path(__file__).parent / "fixtures" / "run-format-1" / "exact-linear"
HIDDEN = RUN.parent / "hidden-causes"
TOKEN, HOST = "a-token-of-a-test", "127.0.0.1:8123"
COOKIE = ("cookie", f"vcuda-8123={TOKEN}")
OWN = (COOKIE, ("origin", f"http://{HOST}"), ("sec-fetch-site", "same-origin"))


class Answer:
    def __init__(self, messages):
        self.status = messages[0]["status"]
        self.headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    @property
    def json(self):
        return json.loads(self.body)


class Client:
    """Asks the application without a socket, as a server would pass it on."""

    def __init__(self, folder, **options):
        self.folder = Folder(folder)
        self.folder.make()
        self.app = App(self.folder, jobs=1, **options)
        self.asgi = application(self.app, token=TOKEN, host="127.0.0.1")

    async def __call__(self, method, path, *headers, body=b"", chunks=None, host=HOST):
        plain, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": plain,
            "raw_path": plain.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in (("host", host), *headers)],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8123),
        }
        parts = iter(chunks if chunks is not None else [body])
        sent = []

        async def receive():
            part = next(parts, None)
            await asyncio.sleep(0)
            return {"type": "http.request", "body": part or b"", "more_body": part is not None}

        async def send(message):
            sent.append(message)

        await self.asgi(scope, receive, send)
        return Answer(sent)

    def get(self, path, *headers, **options):
        return asyncio.run(self("GET", path, *(headers or OWN), **options))

    def post(self, path, content=None, *headers, **options):
        body = json.dumps(content or {}).encode()
        return asyncio.run(self("POST", path, *(headers or OWN), **({"body": body} | options)))


@pytest.fixture
def client(tmp_path):
    return Client(tmp_path / "runs")


# ---- who may ask


def test_the_token_opens_the_page_and_leaves_the_address(client):
    first = client.get(f"/?token={TOKEN}", ("sec-fetch-mode", "navigate"))
    assert first.status == 303
    assert first.headers["location"] == "/"
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN in cookie
    page = client.get("/", COOKIE)
    assert page.status == 200
    assert TOKEN not in page.body.decode()


@pytest.mark.parametrize("path", ["/", "/api/state", "/static/app.js", "/api/runs/x/download/report"])
@pytest.mark.parametrize(
    "headers",
    [(), (("cookie", "vcuda-8123=wrong"),), (("cookie", f"vcuda-9999={TOKEN}"),), (("cookie", "\x00;;=="),)],
    ids=["none", "wrong", "other port", "odd"],
)
def test_nothing_is_answered_without_the_token(client, path, headers):
    answer = asyncio.run(client("GET", path, *headers))
    assert answer.status == 403
    assert b"token" in answer.body


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_a_wrong_token_sets_no_cookie(client, token):
    answer = asyncio.run(client("GET", f"/?token={token}"))
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "foreign",
    [
        ("origin", "http://evil.example"),
        ("origin", "http://127.0.0.1:9999"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ],
)
def test_another_origin_is_refused_even_with_the_token(client, foreign):
    for method in ("GET", "POST"):
        answer = asyncio.run(client(method, "/api/state", COOKIE, foreign))
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
    preflight = asyncio.run(client("OPTIONS", "/api/fits", COOKIE, foreign))
    assert preflight.status == 403


def test_what_changes_something_must_say_where_it_comes_from(client):
    assert client.post("/api/fits", {}, COOKIE).status == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8123", "127.0.0.1.evil.example", "", "[", "a@b:1"])
def test_a_name_that_was_made_to_lead_here_is_refused(client, host):
    assert client.get("/api/state", host=host).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8123", "localhost:8123", "[::1]:8123"])
def test_names_of_this_machine_are_ours(client, host):
    assert client.get("/api/state", COOKIE, host=host).status == 200


def test_every_answer_has_the_headers_that_protect_it(client):
    for answer in (client.get("/"), client.get("/api/state"), asyncio.run(client("GET", "/api/state"))):
        for name, value in HEADERS.items():
            assert answer.headers[name.lower()] == value
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


# ---- names and places


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("churn.csv", "churn.csv"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/abs/olute.csv", "olute.csv"),
        ("..", "table"),
        ("", "table"),
        (".hidden.csv", "hidden.csv"),
        ("a\0b\n<c>.csv", "a_b__c_.csv"),
        ("CON.csv", "table.csv"),
        ("日本.csv", "日本.csv"),
        ("x" * 500 + ".csv", "x" * 96 + ".csv"),
    ],
)
def test_a_file_gets_a_name_without_tricks(given, stored):
    assert safe_name(given, "table") == stored


@pytest.mark.parametrize("name", ["../../outside.csv", "..%2f..%2foutside.csv", "/outside.csv", "C:\\outside.csv", ""])
def test_an_upload_stays_in_its_folder(client, tmp_path, name):
    answer = client.post(f"/api/tables?name={quote(name)}", body=b"a,b\n1,2\n")
    assert answer.status == 200
    inside = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent for path in inside] == [tmp_path / "runs" / "tables"]
    assert answer.json["table"] == inside[0].name


@pytest.mark.parametrize(
    "run", ["..", ".", "../secret", "..%2Fsecret", "/etc", "tables", "knowledge", ".vcuda-app", "link"]
)
def test_only_runs_of_the_folder_can_be_asked_about(client, tmp_path, run):
    shutil.copytree(RUN, tmp_path / "secret")
    os.symlink(tmp_path / "secret", client.folder.path / "link")
    for path in ("", "/progress", "/download/report", "/effect?cause=a&outcome=b"):
        answer = client.get(f"/api/runs/{run}{path}")
        assert answer.status in (400, 404)
        assert not answer.body.startswith(b'{"names"')


@pytest.mark.parametrize("name", ["../server.py", "..%2fserver.py", "index.html", "icon.svg/..", ""])
def test_only_files_of_the_page_are_sent(client, name):
    assert client.get(f"/static/{name}").status == 404


def test_a_table_is_looked_up_and_never_opened_by_path(client, tmp_path):
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    for table in ("../secret.csv", str(tmp_path / "secret.csv"), "sqlite:///x.db", "https://example.invalid/t.csv"):
        for path in ("/api/columns", "/api/fits"):
            answer = client.post(path, {"table": table})
            assert answer.status == 400
            assert "there is no table" in answer.json["error"]
    assert not client.app.jobs.every()


def test_options_that_the_page_does_not_set_are_refused(client):
    with pytest.raises(ConfigError, match="cannot set the option 'engine'"):
        answers.QUESTIONS["inspect"]("sachs", {"engine": "exact"})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"[" * 100_000, b'{"table": 3}', b"\xff\xfe"])
def test_requests_that_are_none_are_refused(client, body):
    for path in ("/api/columns", "/api/fits", "/api/knowledge/read"):
        assert client.post(path, body=body).status == 400


def test_a_request_is_read_no_further_than_is_sensible(client):
    answer = client.post("/api/fits", chunks=[b" " * 1_000_000] * 9)
    assert answer.status == 400
    assert "more than 5 MB" in answer.json["error"]


# ---- uploads


def test_twenty_uploads_at_once_are_twenty_files(client):
    async def all_at_once():
        def chunks(k):
            return [f"a,b\n{k},".encode(), *[b"1"] * 50, b"\n"]

        return await asyncio.gather(
            *(client("POST", "/api/tables?name=same.csv", *OWN, chunks=chunks(k)) for k in range(20))
        )

    made = asyncio.run(all_at_once())
    assert {answer.status for answer in made} == {200}
    stored = {path.name: path.read_bytes() for path in (client.folder.path / "tables").iterdir()}
    assert set(stored) == {answer.json["table"] for answer in made}
    assert len(set(stored.values())) == 20


def test_a_huge_file_is_refused_before_it_is_stored(client):
    def never():
        raise AssertionError("a byte was asked for")
        yield

    answer = client.post(
        "/api/tables?name=huge.csv", None, *OWN, ("content-length", str(2_000_000_001)), chunks=never()
    )
    assert answer.status == 400
    assert "more than 2.0 GB" in answer.json["error"]
    assert not list((client.folder.path / "tables").iterdir())


def test_a_file_that_lies_about_its_size_ends_at_the_limit(tmp_path):
    client = Client(tmp_path / "runs", upload_limit=1_000_000)
    asked = 0

    def endless():
        nonlocal asked
        while True:
            asked += 1
            yield b"1,2,3\n" * 10_000

    answer = client.post("/api/tables?name=huge.csv", None, *OWN, ("content-length", "10"), chunks=endless())
    assert answer.status == 400
    assert asked < 20
    assert not list((client.folder.path / "tables").iterdir())


def test_an_upload_leaves_room_on_the_disk(client, monkeypatch):
    monkeypatch.setattr("vcuda.app.folder.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    answer = client.post("/api/tables?name=t.csv", body=b"a,b\n1,2\n")
    assert answer.status == 400
    assert "too little room" in answer.json["error"]


def test_an_empty_upload_is_refused(client):
    assert "empty" in client.post("/api/tables?name=t.csv", body=b"").json["error"]


# ---- runs and answers


def test_a_folder_lists_its_runs_and_tables(client, tmp_path):
    shutil.copytree(RUN, client.folder.path / "done")
    (client.folder.path / "begun" / "checkpoint").mkdir(parents=True)
    (client.folder.path / "begun" / "checkpoint" / "request.json").write_text("{}")
    (client.folder.path / "other").mkdir()
    (client.folder.path / "done" / "summary.json").write_text('{"status": "ok", "rows": 5, "columns": ["not", "int"]}')
    state = client.get("/api/state").json
    found = {run["name"]: run for run in state["runs"]}
    assert set(found) == {"done", "begun"}
    assert (found["done"]["finished"], found["done"]["resumable"]) == (True, False)
    assert (found["begun"]["finished"], found["begun"]["resumable"]) == (False, True)
    assert found["done"]["rows"] == 5
    assert "columns" not in found["done"]
    opened = Folder(tmp_path, table=str(tmp_path / "mine.csv"))
    assert opened.tables() == {"mine.csv": tmp_path / "mine.csv"}


def test_a_run_is_answered_about_in_json():
    found = answers.result(str(RUN))
    json.dumps(found, allow_nan=False)
    names = found["names"]
    assert {source for source, *_ in found["edges"]} <= set(names)
    assert all(0 <= edge[2] <= 1 for edge in found["edges"])
    effect = answers.effect(str(RUN), names[0], names[1])
    assert effect["low"] <= effect["mean"] <= effect["high"]
    assert answers.paths(str(RUN), names[0], names[1])["probability"] <= 1
    assert answers.compare(str(RUN), str(RUN))["edges"] == []
    assert answers.drivers(str(RUN), names[-1])["target"] == names[-1]
    for made in (effect, answers.experiments(str(RUN)), answers.drivers(str(RUN), names[1])):
        json.dumps(made, allow_nan=False)
    for kind in ("report", "python", "csv", "json", "dot", "graphml", "gml", "dagitty"):
        assert answers.download(str(RUN), kind, {})["text"].strip()
    with pytest.raises(ConfigError, match="Tetrad cannot hold the name"):
        answers.download(str(RUN), "tetrad", {})


@pytest.mark.parametrize("kind", NAMES)
def test_hostile_names_are_only_ever_data(tmp_path, kind):
    found = answers.result(str(hostile_run(tmp_path / "run", NAMES[kind])))
    assert found["names"] == list(NAMES[kind])
    assert WORDS in json.dumps(found["notes"])


def test_the_columns_of_a_table_are_described(tmp_path):
    rows = "".join(f"{k},{k % 3},{'<b>yes</b>' if k % 2 else 'no'},{k * 0.5 if k % 7 else ''}\n" for k in range(60))
    file = tmp_path / "t.csv"
    file.write_text("id,grade,<script>,value\n" + rows)
    found = answers.QUESTIONS["inspect"](str(file), {})
    columns = {one["name"]: one for one in found["columns"]}
    assert columns["id"]["kind"] is None
    assert columns["<script>"]["bars"] == [["<b>yes</b>", 30], ["no", 30]]
    assert columns["value"]["missing"] == 9
    assert sum(count for _, count in columns["value"]["bars"]) == 51
    again = answers.QUESTIONS["inspect"](str(file), {"kinds": {"grade": "label"}, "exclude": ["value"]})
    assert {one["name"]: one["kind"] for one in again["columns"]}["grade"] == "label"
    assert "value" not in {one["name"] for one in again["columns"]}


def test_a_number_that_may_mean_missing_stands_at_its_column(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("grade,price\n" + "".join(f"{-999 if k % 9 == 0 else k % 5},{k * 1.5}\n" for k in range(60)))
    columns = {one["name"]: one for one in answers.QUESTIONS["inspect"](str(file), {})["columns"]}
    assert columns["grade"]["code"] == "-999"
    assert "code" not in columns["price"]
    again = {
        one["name"]: one for one in answers.QUESTIONS["inspect"](str(file), {"missing_values": ["-999"]})["columns"]
    }
    assert "code" not in again["grade"]
    assert (again["grade"]["missing"], again["grade"]["kind"]) == (7, "ordered")


def test_the_command_of_a_fit_repeats_what_was_asked(tmp_path):
    known = {"required": [["a", "b"]], "tiers": [["a"], ["b", "c, d"]]}
    file = tmp_path / "known.toml"
    made = answers.QUESTIONS["request"](
        "sachs", {"kinds": {"a=b": "label"}, "exclude": ["x, y"], "time_limit": 60.0}, known, str(file), "run"
    )
    assert made["words"][:5] == ["vcuda", "fit", "sachs", "-o", "run"]
    options = ["--kind", "a=b=label", "--exclude", '"x, y"', "--time-limit", "60.0"]
    assert made["words"][5:] == [*options, "--knowledge", str(file)]
    assert 'required = [["a", "b"]]' in file.read_text()
    checked = answers.QUESTIONS["check_knowledge"](known, ["a", "b", "c, d"])
    assert "1 edge required" in checked["sentence"]
    assert answers.QUESTIONS["read_knowledge"]("k.toml", checked["toml"])["required"] == [["a", "b"]]


# ---- what a row is


def write_months(path):
    """Visits follow the advertising of the month before, in two shops that have levels of their own."""
    rng, lines = random.Random(0), ["month,shop,ads,visits,open"]
    for shop, level in (("north", 0.0), ("south", 9.0)):
        before = 0.0
        for month in range(60):
            ads = rng.gauss(0, 1)
            visits = level + 0.9 * before + rng.gauss(0, 0.5)
            days = "yes" if rng.random() < 0.5 else "no"
            lines.append(f"{2020 + month // 12}-{month % 12 + 1:02d},{shop},{ads:.3f},{visits:.3f},{days}")
            before = ads
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    return write_months(tmp_path_factory.mktemp("months") / "months.csv")


def taken_as(table, **options):
    return answers.QUESTIONS["inspect"](table, {"exclude": ["open"], **options})


def test_rows_that_are_steps_in_time_are_described_before_the_fit(months):
    found = taken_as(months, lags=2, time="month", unit="shop")
    assert [one["name"] for one in found["columns"]] == ["ads", "visits"]
    assert "2 units" in found["taken_as"][0]
    assert "2 steps before it" in found["taken_as"][0]
    assert "found by the fit" in taken_as(months, lags="auto", time="month", unit="shop")["taken_as"][0]


def test_rows_from_several_places_are_described_before_the_fit(months):
    found = taken_as(months, contexts=["shop"], exclude=["open", "month"])
    assert [one["name"] for one in found["columns"]] == ["ads", "visits"]
    assert "2 environments, by 'shop'" in found["taken_as"][0]


def test_what_a_row_is_becomes_options_of_the_command(tmp_path):
    def words(**options):
        return answers.QUESTIONS["request"]("t.csv", options, None, str(tmp_path / "k.toml"), "run")["words"][5:]

    # What has its default is not said.
    steps = {"lags": 2, "time": "month", "unit": "", "season": "auto", "trend": "none", "contemporaneous": False}
    assert words(**steps) == ["--lags", "2", "--time", "month", "--trend", "none", "--no-contemporaneous"]
    assert words(contexts=["shop"], reference="north", changes="mechanisms") == [
        *("--contexts", "shop", "--reference", "north")
    ]
    assert words(hidden=True) == ["--hidden"]
    assert words(hidden=False, lags="", contexts=[]) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time": "month"}, "time is for rows that are steps in time"),
        ({"lags": 2, "time": "shop"}, "which is no time"),
        ({"lags": 2, "time": "month"}, "unit="),
        ({"lags": 2, "time": "mnth"}, "there is no column 'mnth'"),
        ({"lags": 500}, "lags must be"),
        ({"lags": {"a": 1}}, "lags must be"),
        ({"lags": 2, "season": 9999}, "season of 9999 steps"),
        ({"lags": 1, "resample": "fortnight", "time": "month"}, "resample must be"),
        ({"lags": 1, "contexts": ["shop"]}, "contexts= is for independent rows"),
        ({"lags": 1, "hidden": True, "exclude": ["open", "shop", "month"]}, "does not go with lags"),
        ({"contexts": ["visits"]}, "an environment of its own"),
        ({"contexts": ["shop"], "reference": "west"}, "no such environment"),
        ({"contexts": ["shop"], "hidden": True}, "does not go with contexts"),
        ({"changes": "shifts"}, "give contexts"),
        ({"changes": "all"}, "changes must be"),
        ({"hidden": True}, "leave out columns of labels, of levels and of yes and no"),
        ({"hidden": "yes"}, "hidden must be"),
    ],
)
def test_what_rows_cannot_be_is_refused_with_a_sentence(months, options, said):
    with pytest.raises(VcudaError) as refused:
        taken_as(months, **options)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_arrows_of_a_series_have_their_lags(months, tmp_path):
    posterior = vcuda.fit(
        months, lags=1, time="month", unit="shop", exclude=["open"], model="linear", checks=False, robust=False
    )
    posterior.save(run := tmp_path / "run")
    found = answers.result(str(run))
    json.dumps(found, allow_nan=False)
    assert found["names"] == ["ads", "visits"]
    assert found["when"] == ["at once", "1 month later"]
    later = {(source, target): likely for source, target, likely, _, _, lag, _ in found["edges"] if lag == 1}
    assert later["ads", "visits"] > 0.99
    first = found["first"][0]
    assert (first["source"], first["target"], first["note"]) == ("ads", "visits", "1 month later")
    (section,) = found["sections"]
    assert section["table"]["rows"][0] == ["ads", "visits", "1 month later", "1.00"]
    assert "ads acts on visits 1 month later" in found["found_more"][0]
    effect = answers.effect(str(run), "ads", "visits")
    assert effect["later"] == "months"
    assert 0.7 < effect["curve"][1]["mean"] < 1.1
    assert set(found["cannot"]) == {"why", "next"}
    page = answers.download(str(run), "report", {})["text"]
    assert "<bdi>ads</bdi> drives <bdi>visits</bdi>, 1 month later" in page


def test_a_result_says_what_places_changed(months, tmp_path):
    posterior = vcuda.fit(
        months, contexts="shop", exclude=["open", "month"], model="linear", checks=False, robust=False
    )
    posterior.save(run := tmp_path / "run")
    found = answers.result(str(run))
    (section,) = found["sections"]
    assert section["id"] == "changes"
    assert section["table"]["rows"][0][:2] == ["south", "visits"]
    assert "south changed visits" in found["found_more"][0]
    assert set(found["cannot"]) == {"why"}
    assert answers.effect(str(run), "ads", "visits")["answer"]


def test_a_result_has_hidden_causes_beside_arrows():
    found = answers.result(str(HIDDEN))
    json.dumps(found, allow_nan=False)
    pairs = vcuda.Posterior.load(HIDDEN).pairs(minimum=0.01)
    assert len(found["edges"]) == 2 * len(pairs)
    hidden = {frozenset(edge[:2]): edge[6] for edge in found["edges"]}
    for source, target, likely in zip(pairs.source, pairs.target, pairs.bidirected, strict=True):
        assert hidden[frozenset((source, target))] == pytest.approx(likely, abs=1e-4)
    assert "or a hidden one" in found["found"]
    assert [one["id"] for one in found["sections"]] == ["hidden-causes"]
    assert set(found["cannot"]) == {"why", "effects", "next"}
    names = found["names"]
    for question in (answers.effect, lambda *asked: answers.why(*asked, None)):
        with pytest.raises(ConfigError):
            question(str(HIDDEN), names[0], names[1])
    assert answers.drivers(str(HIDDEN), names[-1])["target"] == names[-1]


# ---- processes


def test_the_server_imports_nothing_heavy():
    assert modules_after("import vcuda.app.server").isdisjoint(HEAVY)


@pytest.mark.slow
def test_answers_come_from_other_processes_that_are_replaced_when_they_die():
    async def ask():
        workers = Workers(number=1)
        try:
            with pytest.raises(RefusedError, match="no_such_file"):
                await workers.ask("inspect", table="no_such_file.csv", options={})
            (process,) = workers._started
            process.kill()
            await process.wait()
            assert await workers.ask("ready") is True
            assert {other.pid for other in workers._started} != {process.pid}
        finally:
            await workers.close()

    asyncio.run(ask())


def test_fits_wait_for_their_turn_and_the_queue_is_bounded(tmp_path):
    async def queue():
        jobs = Jobs(tmp_path, most=1, most_waiting=2)
        for name in ("one", "two", "three"):
            jobs.start(name, ["no-such-command"])
            await asyncio.sleep(0.05)
        assert [job["state"] for job in jobs.every().values()] == ["running", "waiting", "waiting"]
        with pytest.raises(ConfigError, match="2 fits are waiting"):
            jobs.start("four", [])
        with pytest.raises(RunError, match="under way"):
            jobs.start("one", [])
        jobs.stop("three")
        await asyncio.gather(*jobs._tasks)
        return jobs

    jobs = asyncio.run(queue())
    states = {run: job["state"] for run, job in jobs.every().items()}
    assert states == {"one": "failed", "two": "failed", "three": "stopped"}
    assert any("no-such-command" in line for line in jobs.every()["one"]["lines"])
    with pytest.raises(RunError, match="no fit one is under way"):
        jobs.stop("one")


@pytest.mark.slow
def test_without_the_extra_there_is_a_sentence(tmp_path):
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('gone', name='starlette')")
    done = subprocess.run(
        [sys.executable, "-m", "vcuda", "app"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "pip install 'vcuda[app]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"), [(["chrun.csv"], "(did you mean 'churn.csv'?)"), (["--folder", "file/below"], "file/below")]
)
def test_an_app_that_cannot_start_says_why(tmp_path, words, said):
    (tmp_path / "churn.csv").write_text("a,b\n")
    (tmp_path / "file").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "vcuda", "app", "--no-browser", *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("vcuda: ")
    assert said in done.stderr


def test_a_fit_cannot_be_started_with_a_name_that_leaves_the_folder(tmp_path):
    folder = Folder(tmp_path)
    folder.make()
    made = [folder.new_run(name) for name in ("../../x", "tables", "..", "same", "same")]
    assert [path.name for path in made] == ["x", "tables-run", "run", "same", "same-2"]
    assert {path.parent for path in made} == {tmp_path}


def test_an_interrupted_upload_leaves_nothing(tmp_path):
    folder = Folder(tmp_path)
    folder.make()

    async def broken():
        yield b"a,b\n"
        raise DataError("gone")

    with pytest.raises(DataError):
        asyncio.run(folder.store("t.csv", broken(), size=None, most=10**9))
    assert not list((tmp_path / "tables").iterdir())

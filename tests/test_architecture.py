"""The walls of the house (docs/architecture.md): imports between rooms, resources of a room, sizes of files."""

import ast
import functools
import pathlib
import re
from collections import Counter

import pytest

from tests.test_prose import prose_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = (
    "protocol",
    "bookkeeper",
    "storage",
    "delayed",
    "converters",
    "client",
    "console",
    "importing",
    "broker",
    "pipeline",
    "cli",
    "testing",
)
MAY_IMPORT = {
    "protocol": set(),
    "bookkeeper": {"protocol"},
    "storage": {"protocol", "bookkeeper"},
    "delayed": {"protocol", "storage"},
    "converters": {"protocol"},
    "client": {"protocol"},
    "console": {"protocol"},
    "importing": {"protocol", "converters", "client"},
    "broker": {"protocol", "bookkeeper", "storage", "delayed", "converters", "client", "console", "importing"},
    "pipeline": {"protocol", "storage", "converters", "client"},
    "cli": {"protocol", "storage", "converters", "client", "pipeline"},
    "testing": {"protocol", "storage", "broker"},
}
PIPELINE_ONLY = {"pyspark", "pyarrow", "numpy", "pandas", "fastavro", "deltalake", "pyiceberg", "pulsar"}
"""Heavy packages: a broker is installed without them."""
OPTIONAL = {("payload_text.py", "fastavro")}
"""(file, package) of optional packages: the file works without the package."""
SPARK_SHELLS = ("source", "sink", "jobs")
"""The parts of the pipeline that import pyspark when they load; all others serve without Spark."""
PURE_ROOMS = ("protocol", "converters")
IMPURE = {"asyncio", "socket", "ssl", "threading", "time", "logging", "structlog", "subprocess", "uvloop", "sqlite3"}
CALLED_FROM_OUTSIDE = {"_should_upgrade", "_command_type"}
"""Private names that uvicorn and a compiled helper use."""
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
BROKER_FLOORS = (
    *(
        "errors",
        "tasks",
        "start_up",
        "compiled_helpers",
        "shutdown",
        "standard_input",
        "slices",
        "loop_watch",
        "limits",
        "parsed_commands",
        "memory_account",
        "descriptors",
        "control_groups",
        "memory_limit",
        "machine_cpu",
        "process_load",
        "collector",
        "heap",
        "time_slices",
        "network_load",
    ),
    *("log_bounds", "logs", "entry_interceptors"),
    *(
        "setting_areas",
        "settings",
        "advertised",
        "setting_suggestions",
        "open_doors",
        "settings_loader",
        "settings_docs",
        "dynamic_settings",
        "stores",
    ),
    *("compat", "policies", "meters", "schemas", "compaction", "ownership"),
    *("consumers", "dispatchers", "subscriptions", "topics", "traces", "foreign_entries", "load_reports"),
    *("auth", "handlers", "network", "process_meters", "websocket", "prometheus", "admin", "admin_backend"),
    *(
        "stored_state",
        "start_checks",
        "listeners",
        "rebuilding",
        "clustering",
        "maintenance",
        "broker",
        "running",
        "cli",
    ),
)
"""Packages and modules of the broker from the lowest up: each imports only lower parts, types included."""
STORAGE_SIBLINGS = ("embedded", "bookkeeper", "managed", "zookeeper")
"""Packages of the storage room: each imports only the room's own modules and itself, so that engines can stand side by
side below the managed layer.
"""
STORAGE_READERS = ("reading", "pulsar_layout", "joining")
"""Packages of the storage room that know engine and managed layer, neither of which knows them."""
STORAGE_DOORS = ("magnetar.storage.disk_sync", "magnetar.storage.reading", "magnetar.storage.joining")
"""The public packages of storage: for all tools, and for backups."""
IMITATED = re.compile(r"\b(?:Java|java\.(?:lang|net|time|util)|Jackson|Jetty|Jersey|URLEncoder|hashCode|JVM|JDK)\b")
"""Imitations of the libraries under Apache Pulsar live in broker/compat, so that a reader of a room meets the room first."""
IMITATIONS_ELSEWHERE = {
    "protocol/key_hash.py": "clients, the sink and the broker choose partitions by String.hashCode",
    "protocol/url_encoder.py": "storage and broker share paths with Apache Pulsar",
    "protocol/message_id.py": "ids and ack sets on the wire are numbers and bit sets of Java",
    "protocol/texts.py": "texts on the wire that are not UTF-8",
    "bookkeeper/jaas.py": "the form of a file that operators have",
    "broker/schemas/avro_defaults.py": "the library's rules of Avro: defaults",
    "broker/schemas/avro_printing.py": "the same: printing",
    "broker/schemas/avro_resolution.py": "the same: resolution",
    "broker/schemas/avro_schema.py": "the same: validity",
}
SHARED_NAMES = {"errors", "ports", "table"}
"""Names of modules that occur in several packages of the broker with the same meaning in each."""
GENERATED = {
    "pulsar_api_pb2.py",
    "managed_ledger_records_pb2.py",
    "pulsar_records_pb2.py",
    "bookkeeper_formats_pb2.py",
}


@functools.cache
def sources():
    return tuple(_sources())


def _sources():
    for room in ROOMS:
        yield from ((room, p) for p in sorted((ROOT / room).rglob("*.py")) if p.name not in GENERATED)


def for_each_file(chosen=lambda room: True):
    """A test of one file becomes a test of all files of the chosen rooms, which names each that fails."""

    def over_all(check):
        def test():
            problems = []
            for room, path in sources():
                if chosen(room):
                    try:
                        check(room, path)
                    except AssertionError as problem:
                        problems.append(f"{path.relative_to(ROOT)}: {problem}")
            assert not problems, "\n".join(problems)

        test.__doc__ = check.__doc__
        return test

    return over_all


def module_name(path):
    return "magnetar." + ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules():
    """All modules and packages of the house by name."""
    return {module_name(path) for _, path in sources()}


@functools.cache
def walked(tree):
    """All nodes of a tree, which several tests look at."""
    return tuple(ast.walk(tree))


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def imports(tree):
    """Modules imported when the module runs; those under TYPE_CHECKING do not count."""
    guarded = set()
    for node in walked(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            guarded.update(id(n) for child in node.body for n in ast.walk(child))
    yield from every_import(tree, guarded)


def every_import(tree, left_out=frozenset()):
    """Modules imported anywhere in the tree, but for the nodes left out."""
    for node in walked(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            if node.module in {"magnetar", *(f"magnetar.{r}" for r in ROOMS)}:
                yield from named
            else:
                yield from {name if name in modules() else node.module for name in named}


@for_each_file()
def test_arrows_point_downwards(room, path):
    for module in every_import(parsed(path)):
        top, *rest = module.split(".")
        assert top not in ROOMS, f"a room is imported by its bare name: {module}"
        if top == "magnetar" and rest and rest[0] in ROOMS:
            assert rest[0] == room or rest[0] in MAY_IMPORT[room], f"{room} may not import {module}"


@for_each_file(lambda room: room not in ("pipeline", "cli"))
def test_the_broker_runs_without_the_libraries_of_the_pipeline(room, path):
    found = {m.split(".")[0] for m in imports(parsed(path))} & PIPELINE_ONLY
    assert not {m for m in found if (path.name, m) not in OPTIONAL}, f"{path.name} imports {found}"


def at_import_time(tree):
    """The imports that run when the module loads: all but those inside functions."""
    inside = {
        id(node)
        for function in walked(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    outside = [node for node in walked(tree) if isinstance(node, ast.stmt) and id(node) not in inside]
    kept = [node for node in outside if isinstance(node, ast.Import | ast.ImportFrom | ast.If)]
    return imports(ast.Module(body=kept, type_ignores=[]))


@for_each_file(lambda room: room in ("pipeline", "cli"))
def test_tools_read_storage_through_its_public_door(room, path):
    for module in imports(parsed(path)):
        if module.startswith("magnetar.storage"):
            doors = STORAGE_DOORS if room == "cli" else STORAGE_DOORS[:-1]
            assert module.startswith(doors), f"private to storage: {module}"


@for_each_file(lambda room: room == "cli")
def test_commands_load_heavy_packages_when_they_need_them(room, path):
    found = {
        m
        for m in at_import_time(parsed(path))
        if m.split(".")[0] in {*PIPELINE_ONLY, "rich"} or m.startswith("magnetar.pipeline")
    }
    assert not found, f"{path.name} imports {found} when it loads"


@for_each_file(lambda room: room == "pipeline")
def test_the_pipeline_keeps_to_its_doors(room, path):
    if path.relative_to(ROOT / "pipeline").parts[0] not in SPARK_SHELLS:
        found = {m for m in at_import_time(parsed(path)) if m.split(".")[0] == "pyspark"}
        assert not found, f"{path.name} needs Spark to load: {found}"


def broker_part(path):
    """The package or module at the top of the broker that a file belongs to."""
    return path.relative_to(ROOT / "broker").parts[0].removesuffix(".py")


def test_every_part_of_the_broker_has_its_floor():
    parts = {broker_part(path) for room, path in sources() if room == "broker"} - {"__init__"}
    assert parts == set(BROKER_FLOORS)


@for_each_file(lambda room: room == "broker")
def test_arrows_inside_the_broker_point_downwards(room, path):
    part = broker_part(path)
    lower = {part, *BROKER_FLOORS[: BROKER_FLOORS.index(part)]} if part in BROKER_FLOORS else set()
    for module in every_import(parsed(path)):
        if module.startswith(f"magnetar.{room}."):
            assert module.split(".")[2] in lower, f"{part} may not import {module}"


def test_a_module_of_the_broker_has_a_name_of_its_own():
    """A module's name shows its only place; areas of settings have the names of their subjects."""
    names = Counter(path.stem for room, path in sources() if room == "broker" and path.parent.name != "setting_areas")
    repeated = {name for name, count in names.items() if count > 1} - {"__init__"}
    assert repeated == SHARED_NAMES


@for_each_file(lambda room: room != "storage")
def test_only_a_topic_knows_a_log_as_a_whole(room, path):
    """All other users declare a Protocol with the few methods that they need."""
    whole = "magnetar.storage.managed.managed_ledger"
    names = {
        alias.name
        for node in walked(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module == whole
        for alias in node.names
    }
    assert "ManagedLedger" not in names or path == ROOT / "broker/topics/topic.py", "it knows the whole log"


@for_each_file(lambda room: room in ("protocol", "bookkeeper", "storage", "delayed", "broker"))
def test_imitations_of_java_live_in_compat(room, path):
    name = str(path.relative_to(ROOT))
    if not name.startswith("broker/compat/"):
        source = path.read_text()
        prose = prose_of(source) if IMITATED.search(source) else ()  # most files name no such library at all
        found = {word for text in prose for word in IMITATED.findall(text)}
        assert bool(found) == (name in IMITATIONS_ELSEWHERE), f"{name}: {sorted(found)}"


def storage_part(path):
    """The package of the storage room that a file belongs to; the empty string for the room's own modules."""
    return path.relative_to(ROOT / "storage").parts[0] if path.parent != ROOT / "storage" else ""


def test_every_package_of_storage_is_a_sibling():
    parts = {storage_part(path) for room, path in sources() if room == "storage"} - {""}
    assert parts == {*STORAGE_SIBLINGS, *STORAGE_READERS}


@for_each_file(lambda room: room == "storage")
def test_engines_and_the_managed_layer_do_not_know_each_other(room, path):
    part = storage_part(path)
    allowed = {part, *STORAGE_SIBLINGS} if part in STORAGE_READERS else {part}
    for module in every_import(parsed(path)):
        part = module.split(".")[2] if module.startswith(f"magnetar.{room}.") else ""
        assert part not in STORAGE_SIBLINGS or part in allowed, f"{path.name} may not import {module}"


@for_each_file(lambda room: room in PURE_ROOMS)
def test_pure_rooms_touch_nothing(room, path):
    found = {m for m in imports(parsed(path)) if m.split(".")[0] in IMPURE}
    assert not found, f"{room} is pure, but {path.name} imports {found}"


@for_each_file()
def test_files_and_functions_stay_small(room, path):
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES, "split it: one noun a file"
    for node in walked(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            lines = node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)
            assert lines <= MAX_FUNCTION_LINES, f"{node.name} has {lines} lines"


@for_each_file()
def test_private_names_are_in_use(room, path):
    tree = parsed(path)
    nodes = list(walked(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    used |= attributes() | CALLED_FROM_OUTSIDE
    constants = [target for n in tree.body if isinstance(n, ast.Assign) for target in n.targets]
    constants += [n.target for n in tree.body if isinstance(n, ast.AnnAssign)]
    made = {target.id for target in constants if isinstance(target, ast.Name)}
    made |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    assert not {name for name in made - used if re.match("_[^_]", name)}


@functools.cache
def attributes():
    """The names behind a dot, in all files: a method may be for classes of other files."""
    return {node.attr for _, path in sources() for node in walked(parsed(path)) if isinstance(node, ast.Attribute)}


@pytest.mark.parametrize("folder", ["tests", "bench"])
def test_files_of_tests_and_benchmarks_stay_small_too(folder):
    lines = {str(p.relative_to(ROOT)): p.read_text().count("\n") for p in (ROOT / folder).rglob("*.py")}
    assert not {name: count for name, count in lines.items() if count > MAX_FILE_LINES}


def import_graph(imports_of):
    """Modules of the house by name, each with the modules (and packages around them) that it imports."""
    edges = {
        module_name(path): {m for m in imports_of(parsed(path)) if m.startswith("magnetar.")} for _, path in sources()
    }
    return {
        a: {b for b in bs if b in edges and b != a} | {p for b in bs if (p := b.rpartition(".")[0]) in edges and p != a}
        for a, bs in edges.items()
    }


def circles(edges):
    """The strongly connected components of more than one module, the largest first (Tarjan's algorithm)."""
    index, low, found = {}, {}, []
    stack, on_stack = [], set()

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        for following in sorted(edges[name]):
            if following not in index:
                visit(following)
                low[name] = min(low[name], low[following])
            elif following in on_stack:
                low[name] = min(low[name], index[following])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            on_stack.difference_update(component)
            if len(component) > 1:
                found.append(sorted(component))

    for name in sorted(edges):
        if name not in index:
            visit(name)
    return sorted(found, key=len, reverse=True)


def told(found):
    return "\n".join(f"{len(names)} files: {' '.join(names)}" for names in found)


def test_imports_make_no_circles():
    """Imports for types and inside functions count: a reader must read that module to understand the importing module."""
    found = circles(import_graph(every_import))
    assert not found, told(found)


def test_a_circle_is_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]


def test_the_picture_of_the_rooms_is_true():
    page = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"^```rooms\n(.*?)^```", page, re.DOTALL | re.MULTILINE).group(1).splitlines()
    line_of = {word: i for i, line in enumerate(picture) for word in line.split()[:2] if word in ROOMS}
    assert set(line_of) == set(ROOMS)
    for room, lower in MAY_IMPORT.items():
        assert all(line_of[other] > line_of[room] for other in lower), f"{room} stands too low"
    rows = {
        row[0].strip(" `"): row for row in (line.strip("|").split("|") for line in page.splitlines()) if len(row) == 4
    }
    for room, lower in MAY_IMPORT.items():
        named = {each.strip() for each in rows[room][2].split(",")} - {"-"}
        assert named == lower, f"the table says that {room} may import {sorted(named)}"


STARTERS = {
    "create_task",
    "ensure_future",
    "run_coroutine_threadsafe",
    "TaskGroup",
    "Thread",
    "Timer",
    "start_new_thread",
}
DOORS = {
    "broker/tasks.py": "tasks of the broker",
    "bookkeeper/background.py": "tasks of the BookKeeper client",
    "bookkeeper/zookeeper/session.py": "the threads that start and stop kazoo",
    "broker/traces/exporting.py": "the thread that ends the exporter of spans",
    "storage/managed/background.py": "tasks of managed ledgers",
    "storage/embedded/lanes.py": "threads of the store",
    "broker/loop_watch.py": "the thread that watches the loop",
    "broker/shutdown.py": "the thread that ends a process whose stop hangs",
    "broker/standard_input.py": "the thread that waits for the end of standard input",
}
"""Modules that start tasks and threads: each keeps a reference, logs a failure, and ends with its owner."""


def starts(tree):
    """Names of called functions that begin a task or a thread."""
    for node in walked(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            if name in STARTERS:
                yield f"{name} in line {node.lineno}"


@for_each_file()
def test_tasks_and_threads_begin_at_the_doors(room, path):
    name = str(path.relative_to(ROOT))
    if room in ("broker", "bookkeeper", "storage", "delayed", "converters", "protocol"):
        assert bool(list(starts(parsed(path)))) == (name in DOORS), f"{name}: {list(starts(parsed(path)))}"


@pytest.mark.parametrize(
    "text",
    [
        "asyncio.create_task(f())",
        "loop.create_task ( f() )",
        "ensure_future(f())",
        "threading.Thread(target=f)",
        "x = Timer(1, f)",
    ],
)
def test_every_way_to_begin_a_task_is_found(text):
    assert list(starts(ast.parse(text)))

#!/opt/magnetar/bin/python
"""Write settings from the environment into configuration files, as the script of this name in Apache Pulsar's image.

    apply-config-from-env.py [--prefix PREFIX] FILE...

PREFIX_key=value (PULSAR_PREFIX_ unless given) sets a key, whether the file has it or not; a variable named like a key
of the file sets that key. A commented key is made one that counts. A file that cannot be written (a mounted one) stays
when it lacks only PULSAR_PREFIX_ variables, which the broker reads itself.
"""

import argparse
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence

BROKERS_PREFIX = "PULSAR_PREFIX_"
LINE = re.compile(r"^(\s*#?\s*)([A-Za-z][\w.]*)\s*=(.*)$")


def applied(text: str, environment: Mapping[str, str], prefix: str) -> str:
    """The text with the settings of the environment."""
    wanted = {
        k.removeprefix(prefix): v for k, v in environment.items() if k.startswith(prefix) and len(k) > len(prefix)
    }
    lines = text.splitlines()
    done: set[str] = set()
    keys = {found[2] for line in lines if (found := LINE.match(line)) and not found[1].strip()}
    values = {key: environment[key] for key in keys if key in environment} | wanted
    counting = {key for key in keys if key in values}
    for i, line in enumerate(lines):
        found = LINE.match(line)
        if found is None or found[2] not in values or (found[1].strip() and found[2] in counting) or found[2] in done:
            continue
        lines[i] = f"{found[2]}={values[found[2]]}"
        done.add(found[2])
    lines += [f"{key}={value}" for key, value in values.items() if key not in done]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", default=BROKERS_PREFIX)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args(arguments)
    return max([write(path, options.prefix) for path in options.files])


def write(path: pathlib.Path, prefix: str) -> int:
    """Put the settings of the environment into the file; 1, with a line, where that is needed and impossible."""
    try:
        text = path.read_text()
    except OSError as e:
        return complain(f"cannot read {path}: {e.strerror}")
    wanted = applied(text, os.environ, prefix)
    if wanted == text:
        return 0
    try:
        path.write_text(wanted)
    except OSError as e:
        others = {name: value for name, value in os.environ.items() if not name.startswith(BROKERS_PREFIX)}
        if prefix == BROKERS_PREFIX and applied(text, others, prefix) == text:
            complain(f"{path} stays: {e.strerror}; the broker reads {prefix} itself")
            return 0
        return complain(f"cannot write {path}: {e.strerror}")
    return 0


def complain(text: str) -> int:
    sys.stderr.write(f"apply-config-from-env.py: {text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

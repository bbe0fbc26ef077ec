#!/opt/magnetar/bin/python
"""Write settings from the environment into configuration files, as the script of this name in Apache Pulsar's image.

    apply-config-from-env.py [--prefix PREFIX] FILE...

PREFIX_key=value (PULSAR_PREFIX_ unless given) sets a key, whether the file has it or not; a variable named like a key
of the file sets that key. A commented key is made one that counts.
"""

import argparse
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence

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
    parser.add_argument("--prefix", default="PULSAR_PREFIX_")
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args(arguments)
    for path in options.files:
        path.write_text(applied(path.read_text(), os.environ, options.prefix))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

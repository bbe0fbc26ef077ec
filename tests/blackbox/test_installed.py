"""The script that `make packages` runs in an environment with nothing but the package, here in the checkout."""

import importlib.util
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def script():
    spec = importlib.util.spec_from_file_location("installed", ROOT / ".ci/installed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_commands_answer_as_the_script_expects(tmp_path):
    script().try_commands(tmp_path)


def test_the_script_knows_every_compiled_helper():
    built = re.findall(r'^ +"(magnetar\.[\w.]+)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert len(built) > 5
    assert sorted(script().COMPILED) == sorted(built)

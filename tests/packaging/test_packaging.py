"""What is published works where it is installed: the wheel, and the wheel made from the sdist."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import sys
import mq
from mq.scripts import load_scripts, script_folder
print(mq.__file__)
print(script_folder())
print(" ".join(load_scripts()))
"""

LATE = ("redis", "cattrs", "click", "rich", "fakeredis")


def run(*args: str | os.PathLike[str], cwd: Path) -> str:
    """Run a command to its end and give what it printed; its complaint is in the failure."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [os.fspath(arg) for arg in args],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build(source: Path, target: str, folder: Path) -> Path:
    """Build one distribution of a source tree without reaching for the network."""
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source)
    (built,) = folder.iterdir()
    return built


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a fresh environment that sees our dependencies; give its ``bin``.

    The dependencies are those of the running environment, behind the fresh one on the path. A path
    that a .pth file names is not searched for .pth files, so an editable mq there stays unseen.
    """
    venv.create(folder, symlinks=True)
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"
    places = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", scheme, places))
    behind = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    run(*pip, "--quiet", "--no-deps", "--no-index", "--no-warn-script-location", wheel, cwd=folder)
    # Last: pip would take an mq that it sees there for this one, already installed.
    (site / "dependencies.pth").write_text("\n".join(sorted(behind)) + "\n")
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout."""
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel_of_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that comes out of the sdist alone."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        # Early 3.11 releases do not know filters; the archive is our own.
        archive.extractall(
            folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    (source,) = folder.iterdir()
    return build(source, "wheel", tmp_path_factory.mktemp("wheel-of-sdist"))


@pytest.fixture(scope="module", params=["wheel", "wheel_of_sdist"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with one of the two wheels in it."""
    built: Path = request.getfixturevalue(request.param)
    return install(built, tmp_path_factory.mktemp("environment"))


def ours(folder: str) -> set[str]:
    """The files of a folder of the checkout that belong into a distribution."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def script_names() -> list[str]:
    """The scripts of the checkout, in the order in which they are loaded."""
    return sorted(path.stem for path in (ROOT / "lua").glob("*.lua"))


def test_wheel_holds_the_package_and_all_scripts(wheel: Path) -> None:
    """Every file of ``mq`` and ``lua`` is in the wheel, and nothing else but its metadata."""
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == ours("mq") | {f"mq/{name}" for name in ours("lua")}


def test_wheel_is_typed_and_licensed(wheel: Path) -> None:
    """The marker for type checkers and the licence come along."""
    names = zipfile.ZipFile(wheel).namelist()
    assert "mq/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_sdist_holds_what_building_and_testing_need(sdist: Path) -> None:
    """The sources, the scripts, the tests and the files that tell how to run them."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "Makefile", "tox.ini", ".luacheckrc"}
    missing = (needed | ours("mq") | ours("lua") | ours("tests")) - inside
    assert missing == set()


def test_wheel_of_the_sdist_is_the_wheel(wheel: Path, wheel_of_sdist: Path) -> None:
    """Both ways lead to the same files."""
    assert zipfile.ZipFile(wheel_of_sdist).namelist() == zipfile.ZipFile(wheel).namelist()


def test_installed_package_finds_its_scripts(installed: Path) -> None:
    """Away from the checkout, the scripts are those inside the package, all of them."""
    where, scripts, names = run(installed / "python", "-c", PROBE, cwd=installed).splitlines()
    assert Path(where).is_relative_to(installed.parent)
    assert Path(scripts) == Path(where).parent / "lua"
    assert names.split() == script_names()


def test_installed_command_lists_its_scripts(installed: Path) -> None:
    """The command starts and knows every script."""
    told = run(installed / "mq", "scripts", cwd=installed)
    assert [name for name in script_names() if name not in told] == []


def test_importing_is_light(installed: Path) -> None:
    """``import mq`` loads neither a client nor a command line."""
    code = f"import mq, sys; print([name for name in {LATE} if name in sys.modules])"
    assert run(installed / "python", "-c", code, cwd=installed) == "[]\n"

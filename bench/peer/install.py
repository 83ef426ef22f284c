#!/usr/bin/env python3
"""llama.cpp with our driver, built for this machine in a folder of its own.

usage: install.py DIR

The source is the one that the registry package llama-cpp-python carries whole. A prebuilt wheel
(xllamacpp) exists, but it is compiled for AVX2 and no more, which would flatter us: so llama.cpp is
built here with GGML_NATIVE, which takes all that the CPU has. About 5 minutes on two idle cores.
"""
import os
import pathlib
import subprocess
import sys
import tarfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "llama-cpp-python"


def say(*args):
    print("+", *args, flush=True)
    subprocess.run([str(a) for a in args], check=True)


def mend(source):
    """GCC 12 takes its own _tile_loadconfig to read 8 bytes and drops the stores of the other 56: the tiles have no
    shape then and the first tile load is an illegal instruction. One empty statement keeps the stores."""
    path = source / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
    text, call = path.read_text(), "    _tile_loadconfig(&tc);"
    keep = '    __asm__ volatile("" : : "m"(tc));\n'
    if keep not in text and text.count(call) == 1:
        path.write_text(text.replace(call, keep + call))


def install(folder):
    folder = pathlib.Path(folder).resolve()
    driver, python = folder / "llama_driver", folder / "venv" / "bin" / "python"
    folder.mkdir(parents=True, exist_ok=True)
    if not python.exists():
        venv.create(folder / "venv", with_pip=True)
        say(python, "-m", "pip", "install", "-q", "numpy")
    if driver.exists() and driver.stat().st_mtime > (HERE / "llama_driver.c").stat().st_mtime:
        return driver, python
    source = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"), None)
    if not source:
        say(python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", PACKAGE, "-d", folder, PACKAGE)
        with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as tar:
            tar.extractall(folder)
        source = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
    mend(source)
    build = folder / "build"
    off = [f"-DLLAMA_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "SERVER", "TOOLS", "COMMON")]
    say("cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
        "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_CURL=OFF", *off)
    say("cmake", "--build", build, "--target", "llama", "-j", os.cpu_count() or 2)
    say("gcc", "-O2", "-o", driver, HERE / "llama_driver.c", "-I", source / "include", "-I",
        source / "ggml" / "include", "-L", build / "bin", "-lllama", "-lggml", "-lggml-base",
        f"-Wl,-rpath,{build / 'bin'}")
    return driver, python


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(*install(sys.argv[1]))

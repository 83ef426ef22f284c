#!/usr/bin/env python3
"""The aarch64 kernels, cross-compiled and run under qemu against the scalar reference. Skipped where
aarch64-linux-gnu-gcc or qemu-aarch64 is absent (Debian: gcc-aarch64-linux-gnu qemu-user).
ctest: slow"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.environ["TRIREME_SOURCE"]
FLAGS = {"quant_dotprod.c": ["-march=armv8.2-a+dotprod"],
         "quant_i8mm.c": ["-march=armv8.2-a+dotprod+i8mm"]}
CC, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"


def main():
    for tool in (CC, QEMU):
        if not shutil.which(tool):
            print(f"SKIP: no {tool} on this machine")
            return 77
    files = (glob.glob(f"{SOURCE}/src/kernels/*.c") + glob.glob(f"{SOURCE}/src/kernels/ref/*.c") +
             glob.glob(f"{SOURCE}/src/kernels/arm/*.c") + glob.glob(f"{SOURCE}/src/fmt/*.c") +
             [f"{SOURCE}/src/os/cpu.c", f"{SOURCE}/src/base/status.c",
              f"{SOURCE}/tests/unit/kernels/arm_variants.c"])
    with tempfile.TemporaryDirectory() as folder:
        objects, jobs = [], []
        for file in files:
            out = os.path.join(folder, os.path.basename(file) + ".o")
            flags = FLAGS.get(os.path.basename(file), [])
            objects.append(out)
            jobs.append(subprocess.Popen(
                [CC, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-ffp-contract=off",
                 "-fno-math-errno", "-fno-strict-aliasing", f"-I{SOURCE}/src", *flags, "-c", file, "-o", out]))
            if len(jobs) == 2 or file == files[-1]:
                if any(job.wait() for job in jobs):
                    return 1
                jobs = []
        program = os.path.join(folder, "variants")
        subprocess.run([CC, "-static", *objects, "-o", program, "-lm"], check=True)
        return all_variants(program) or levels_follow_the_cpu(program)


def variants_run(program, cpu, **env):
    run = subprocess.run([QEMU, "-cpu", cpu, program], timeout=300, capture_output=True, text=True,
                         env=dict(os.environ, **env))
    print(f"{cpu} {env}: {run.stdout.splitlines()[-1:]}")
    assert run.returncode == 0, run.stdout + run.stderr
    return {line.split(":")[0].split()[1] for line in run.stdout.splitlines() if ": " in line}


def all_variants(program):
    assert variants_run(program, "max") == {"base", "dotprod", "i8mm"}
    return 0


def levels_follow_the_cpu(program):
    """A CPU without an instruction (the emulator then traps it), and the cap by name."""
    assert variants_run(program, "cortex-a53") == {"base"}  # Armv8.0
    assert variants_run(program, "neoverse-n1") == {"base", "dotprod"}  # Armv8.2
    assert variants_run(program, "max", TRIREME_ISA="dotprod") == {"base", "dotprod"}
    assert variants_run(program, "max", TRIREME_ISA="base") == {"base"}
    return 0


if __name__ == "__main__":
    sys.exit(main())

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
            flags = ["-march=armv8.2-a+dotprod"] if file.endswith("dotprod.c") else []
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
        run = subprocess.run([QEMU, "-cpu", "max", program], timeout=300)
        if run.returncode:
            return 1
        capped = subprocess.run([QEMU, "-cpu", "max", program], timeout=300, capture_output=True,
                                text=True, env=dict(os.environ, TRIREME_ISA="base"))
        print("capped at base:", capped.stdout.splitlines()[-1])
        return capped.returncode or "dotprod" in capped.stdout


if __name__ == "__main__":
    sys.exit(main())

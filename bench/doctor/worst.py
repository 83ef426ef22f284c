"""The doctor on the largest file it accepts, of every kind: each own sample, and each kind of line of
each, repeated up to the limit. Prints CPU seconds and MB/s, slowest first, and what grows faster than
its size. Usage: worst.py TRIREME [MiB, default 31.9] [lines]"""
import glob
import os
import re
import resource
import subprocess
import sys
import tempfile

TRIREME = sys.argv[1]
MIB = float(sys.argv[2]) if len(sys.argv) > 2 else 31.9
SAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "tests", "machines")


def units(lines):
    """(name, bytes to repeat)"""
    seen = set()
    for path in sorted(glob.glob(SAMPLES + "/*.[tx][xm][tl]")):
        with open(path, "rb") as f:
            text = f.read()
        if not lines:
            yield os.path.basename(path), text
            continue
        for number, line in enumerate(text.split(b"\n"), 1):
            kind = re.sub(rb"[0-9a-f]+", b"0", line)[:40]  # lines that differ in numbers only are one kind
            if line.strip() and not line.startswith(b"#") and kind not in seen:
                seen.add(kind)
                yield f"{os.path.basename(path)}:{number}", line + b"\n"


def cpu(path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run([TRIREME, "doctor", "--json", path], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=60).returncode
    except subprocess.TimeoutExpired:
        done = -1
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, done


def main():
    rows = []
    with tempfile.NamedTemporaryFile() as f:
        for name, unit in units("lines" in sys.argv):
            times = []
            for share in (4, 1):
                size = int(MIB * 2 ** 20 / share)
                f.seek(0)
                f.truncate()
                f.write((unit * (size // len(unit) + 1))[:size])
                f.flush()
                seconds, code = cpu(f.name)
                times.append(seconds)
            rows.append((times[1], times[1] / max(times[0], 0.02), code, name))
    rows.sort(reverse=True)
    for seconds, growth, code, name in rows[:20]:
        print(f"{seconds:7.3f} s  {MIB * 1.048576 / seconds:7.1f} MB/s  grew x{growth:.1f} for x4  code {code}  {name}")
    print(f"{len(rows)} files of {MIB} MiB; median {rows[len(rows) // 2][0]:.3f} s; "
          f"grew more than x6: {sum(r[1] > 6 for r in rows)}")


if __name__ == "__main__":
    main()

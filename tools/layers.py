#!/usr/bin/env python3
"""Checks that includes follow LAYERS: a file may include its own room and the rooms its line names,
another room only by its door (<room>/<room>.h; the toolboxes base and os have several), and the
rooms must not form a cycle. Headers of kernels/<isa>/ and *_priv.h stay inside their room."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLBOXES = {"base", "os"}


def read_layers():
    allowed, order = {}, []
    for line in (ROOT / "LAYERS").read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        room, rest = line.split(":", 1)
        room = room.strip()
        uses = rest.split("|")[0].split()
        for used in uses:
            if used not in allowed:
                sys.exit(f"LAYERS: {room} uses {used}, which is not declared above it")
        allowed[room] = set(uses)
        order.append(room)
    return allowed


def check(path, allowed, faults):
    rel = path.relative_to(ROOT / "src")
    room = rel.parts[0]
    if room not in allowed:
        faults.append(f"{rel}: room {room} is not in LAYERS")
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not m:
            continue
        target = pathlib.PurePosixPath(m.group(1))
        if len(target.parts) < 2:
            faults.append(f'src/{rel}:{number}: write "{room}/{target}", not a bare file name')
            continue
        other = target.parts[0]
        if not (ROOT / "src" / target).exists():
            faults.append(f"src/{rel}:{number}: no file src/{target}")
        elif other == room:
            continue
        elif other not in allowed[room]:
            faults.append(f"src/{rel}:{number}: {room} may not include {other} (see LAYERS)")
        elif other not in TOOLBOXES and str(target) != f"{other}/{other}.h":
            faults.append(f"src/{rel}:{number}: only the door {other}/{other}.h may be included")


def main():
    allowed = read_layers()
    faults = []
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        check(path, allowed, faults)
    for room in allowed:
        folder = ROOT / "src" / room
        if folder.exists() and room not in TOOLBOXES and not (folder / f"{room}.h").exists():
            faults.append(f"src/{room}: no door {room}/{room}.h")
    for fault in faults:
        print(fault)
    print(f"{len(allowed)} rooms, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Style as a test: sizes of files and functions, banned calls, foreign headers kept in one place,
unique file names, line length, tabs, trailing blanks. `--report` lists the largest things."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_WARN, FILE_MAX, FUNCTION_MAX, LINE_MAX = 500, 800, 70, 100
KERNEL_FUNCTION_MAX = 120

# (pattern, where it is allowed, what to use instead)
BANNED = [
    (r"\b(malloc|calloc|realloc|strdup|strndup|posix_memalign|aligned_alloc)\s*\(", r"^base/mem\.c$",
     "tri_malloc and friends (base/mem.h)"),
    (r"(?<![\w>.])free\s*\(", r"^base/mem\.c$", "tri_free (base/mem.h)"),
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof)\s*\(", r"^$", "bounded calls"),
    (r"(?<!\w)(printf|puts|putchar|perror)\s*\(", r"^cli/", "status and notes; only cli prints"),
    (r"(?<!\w)fprintf\s*\(", r"^(cli/|base/status\.c$)", "status and notes; only cli prints"),
    (r"(?<!\w)_?exit\s*\(", r"^cli/", "a status; only cli exits"),
    (r"(?<!\w)abort\s*\(", r"^base/status\.c$", "TRI_ASSERT"),
    (r"\bgetenv\s*\(", r"^(os/|cli/)", "os/"),
]
FOREIGN = [
    (r"immintrin\.h", r"^kernels/x86/"), (r"arm_neon\.h", r"^kernels/arm/"),
    (r"liburing\.h", r"^os/"), (r"pcre2\.h", r"^text/"), (r"mpi\.h", r"^comm/"),
    (r"hwloc\.h", r"^(topo|os)/"), (r"expat\.h", r"^topo/"), (r"event2/", r"^http/"), (r"curl/", r"^bench/"),
    (r"histedit\.h", r"^cli/"), (r"zlib\.h", r"^spec/"), (r"openssl/", r"^(http|base)/"),
    (r"xxhash\.h", r"^base/"),
]


def strip_comments(text):
    """Blanks comments and string contents, keeping line numbers."""
    def blank(match):
        s = match.group(0)
        return re.sub(r"[^\n]", " ", s) if s.startswith("/") else s[0] + s[-1]
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def functions(code):
    """(name, first line, lines) of each function body: a line starting with '{' in column 0."""
    lines = code.split("\n")
    start = None
    for i, line in enumerate(lines):
        if line.startswith("{") and i:
            start = i
        elif line.startswith("}") and start is not None:
            head = " ".join(lines[max(0, start - 4):start])
            names = re.findall(r"(\w+)\s*\(", head)
            yield (names[-1] if names else "?", start + 1, i - start + 1)
            start = None


def check_file(path, faults, warnings, sizes):
    rel = path.relative_to(ROOT / "src").as_posix()
    text = path.read_text()
    lines = text.split("\n")
    generated = "generated" in lines[0].lower() or "tables:" in lines[0].lower()
    if not generated:
        sizes.append((len(lines), rel))
        if len(lines) > FILE_MAX:
            faults.append(f"{rel}: {len(lines)} lines, at most {FILE_MAX}; split it")
        elif len(lines) > FILE_WARN:
            warnings.append(f"{rel}: {len(lines)} lines, aim at {FILE_WARN}")
    for n, line in enumerate(lines, 1):
        if len(line) > LINE_MAX:
            faults.append(f"{rel}:{n}: {len(line)} columns, at most {LINE_MAX}")
        if "\t" in line:
            faults.append(f"{rel}:{n}: tab")
        if line != line.rstrip():
            faults.append(f"{rel}:{n}: trailing blank")
    code = strip_comments(text)
    for pattern, where, instead in BANNED:
        if re.search(where, rel) and where != r"^$":
            continue
        for m in re.finditer(pattern, code):
            faults.append(f"{rel}:{code.count(chr(10), 0, m.start()) + 1}: {m.group(0)} is banned here: use {instead}")
    for pattern, where in FOREIGN:
        if re.search(r'#\s*include\s*<[^>]*' + pattern, text) and not re.search(where, rel):
            faults.append(f"{rel}: {pattern} may only be included in {where}")
    limit = KERNEL_FUNCTION_MAX if re.match(r"kernels/\w+/", rel) else FUNCTION_MAX
    for name, line, count in functions(code):
        if count > limit:
            faults.append(f"{rel}:{line}: {name} has {count} lines, at most {limit}")


def main():
    faults, warnings, sizes, names = [], [], [], {}
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        check_file(path, faults, warnings, sizes)
        if path.name in names:
            faults.append(f"{path.name}: file name used twice ({names[path.name]} and {path.parent.name})")
        names[path.name] = path.parent.name
    if "--report" in sys.argv:
        for count, rel in sorted(sizes, reverse=True)[:15]:
            print(f"{count:6} {rel}")
        for warning in warnings:
            print("warning:", warning)
    for fault in faults:
        print(fault)
    print(f"{len(sizes)} files, {len(faults)} faults, {len(warnings)} warnings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

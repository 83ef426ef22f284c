#!/usr/bin/env python3
"""Writes the man page from what the program says about itself: `man.py TRIREME OUT`. Run by the
build, so it cannot fall behind the options (`ARGP_HELP_FMT` keeps each option on one line)."""
import os
import re
import subprocess
import sys

INTRO = r"""plans, diagnoses, runs, serves and measures Kimi K3 class models on people's own machines. It
is one program; its first word says what to do. Without a model, commands use the small one that is
shipped."""
EXIT = [("0", "fine"), ("1", "refused or failed; one line on standard error says why"),
        ("2", "usage (doctor: something is wrong with the machine; its usage errors are 3)")]
ENVIRONMENT = [("TRIREME_MODEL", "model folder for commands that are given none"),
               ("TRIREME_ISA", "at most these CPU features, for comparing kernels")]
FILES = [("PREFIX/share/trireme/models/nano", "the small model"),
         ("PREFIX/share/trireme/ops", "nginx, Prometheus and Grafana files for servers"),
         ("PREFIX/lib/systemd/system/trireme.service", "the server as a service"),
         ("MODEL/.trireme", "statistics of experts, kept for later runs (--keep-nothing)")]


def roff(text):
    """Text as roff: no line begins a request, no dash becomes a hyphen."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")
    text = text.replace("`", "\\(ga").replace("'", "\\(aq").replace('"', "\\(dq")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def run(program, *args):
    env = dict(os.environ, ARGP_HELP_FMT="rmargin=1000", LC_ALL="C.UTF-8")
    return subprocess.run([program, *args], env=env, check=True, capture_output=True, text=True).stdout


def literal(lines):
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return [".PP", ".nf", *(roff(line) for line in lines), ".fi"] if lines else []


def command(name, text):
    """One command's --help as a subsection."""
    lines = [line for line in text.rstrip("\n").split("\n")
             if not line.startswith("Mandatory or optional arguments")]
    usage = lines.pop(0).replace("Usage: ", "")
    out = [f'.SS "{name}"', f".B {roff(usage)}"]
    while lines and (lines[0].startswith("  or: ")):
        out += [".br", ".B " + roff(lines.pop(0).replace("  or: ", "").strip())]
    doc, tail, seen = [], [], False
    for line in lines:
        option = re.match(r"^ {2,6}(-\S.*?)(?: {2,}(.*))?$", line)
        group = re.match(r"^ (\S.*):$", line)
        if option and not re.match(r"^ +-\S+ \S+ \S", line.split("  ")[0]):
            seen = True
            out += [".TP", ".B " + roff(option.group(1)), roff(option.group(2) or "")]
        elif group:
            out += [".PP", ".I " + roff(group.group(1))]
        elif seen:
            tail.append(line)
        elif line.strip():
            doc.append(line.strip())
    if doc:
        out[2 if len(out) > 2 and out[2].startswith(".br") else 2:2] = [".PP", roff(" ".join(doc))]
    while tail and not tail[0].strip():
        tail.pop(0)
    return out + literal(tail)


def pairs(title, rows):
    out = [f".SH {title}"]
    for a, b in rows:
        out += [".TP", ".B " + roff(a), roff(b)]
    return out


def page(program):
    overview = run(program, "--help")
    version = run(program, "--version").split()[1]
    names = re.findall(r"(?m)^  (\w+) +(.*)$", overview)
    out = [f'.TH TRIREME 1 "" "trireme {version}" "User Commands"', ".SH NAME",
           "trireme \\- run large mixture\\-of\\-experts models on your own machines", ".SH SYNOPSIS",
           ".B trireme COMMAND", ".RI [ OPTION ]...", ".SH DESCRIPTION", ".B trireme", roff(INTRO)]
    for name, text in names:
        out += [".TP", f".B {name}", roff(text)]
    out += [".SH COMMANDS", "Sizes K, M, G and T are binary; token counts take k for 1024."]
    for name, _ in names:
        out += command(name, run(program, name, "--help"))
    out += pairs('"EXIT STATUS"', EXIT) + pairs("ENVIRONMENT", ENVIRONMENT) + pairs("FILES", FILES)
    out += [".SH SEE ALSO", "The folder docs of the sources: serving.md, operating.md, planning.md."]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    text = page(sys.argv[1])
    with open(sys.argv[2], "w") as f:
        f.write(text)

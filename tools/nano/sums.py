"""Turns with numbers: sums with their working, comparing, counting."""

from say import bot, loose, user
from world import FOODS, NAMES


def working(a, op, b):
    """(working, result) with ones and tens written out."""
    if op == "+":
        s = a % 10 + b % 10
        t = a // 10 + b // 10 + s // 10
        return (
            f"Ones: {a % 10} + {b % 10} = {s}. Tens: {a // 10} + {b // 10} + {s // 10} = {t}.",
            a + b,
        )
    if op == "-":
        low = int(a % 10 < b % 10)
        x = a % 10 + 10 * low
        return (
            f"Ones: {x} - {b % 10} = {x - b % 10}. Tens: {a // 10} - {b // 10} - {low} = "
            f"{a // 10 - b // 10 - low}.",
            a - b,
        )
    return "From the table.", a * b


def numbers(r, op=None):
    op = op or r.choice("++++---*")
    if op == "*":
        return r.randint(0, 10), op, r.randint(0, 10)
    hi = 99 if r.random() < 0.85 else 9
    a, b = r.randint(0, hi), r.randint(0, hi)
    if op == "-" and a < b:
        a, b = b, a
    return a, op, b


WORD = {"+": "plus", "-": "minus", "*": "times"}


def ask_sum(r, a, op, b):
    x = {"+": f"{a} + {b}", "-": f"{a} - {b}", "*": f"{a} * {b}"}[op]
    w = f"{a} {WORD[op]} {b}"
    q = (
        [f"What is {x}?"] * 4
        + [f"What is {w}?"] * 2
        + [
            f"{x} = ?",
            f"{x}",
            f"{x} =",
            f"How much is {x}?",
            f"Compute {x}.",
            f"Calculate {x}.",
            f"{w}?",
            f"{x.replace(' ', '')}?",
            f"{x}?",
            f"How much is {w}?",
            f"What's {x}?",
            f"Tell me what {w} is.",
            x.replace(" ", ""),
            f"What is {x.replace(' ', '')}?",
            f"Can you work out {x}?",
            f"Please add {a} and {b}." if op == "+" else f"Solve {x}.",
        ]
    )
    return loose(r, r.choice(q)) if r.random() < 0.5 else r.choice(q)


def sum_turn(r, effort, op=None):
    a, op, b = numbers(r, op)
    if op != "*" and r.random() < 0.1:
        n, f = r.choice(NAMES), r.choice(FOODS)
        q = (
            f"{n} has {a} {f} and gets {b} more. How many {f} does {n} have now?"
            if op == "+"
            else f"{n} has {a} {f} and gives away {b}. How many {f} are left?"
        )
        w, s = working(a, op, b)
        return [
            user(q),
            bot(
                f"{a} {op} {b}. {w} So {a} {op} {b} = {s}." if effort != "low" else "",
                f"{n} has {s} {f}." if op == "+" else f"{s} {f} are left.",
            ),
        ], str(s)
    w, s = working(a, op, b)
    full = f"{a} {op} {b}. {w} So {a} {op} {b} = {s}."
    return [
        user(ask_sum(r, a, op, b)),
        bot(full if effort != "low" else "", f"{a} {op} {b} = {s}."),
    ], f"= {s}."


def compare_turn(r, effort):
    a, b = r.sample(range(100), 2)
    big = r.random() < 0.5
    w = r.choice(("bigger", "larger")) if big else "smaller"
    s = max(a, b) if big else min(a, b)
    return [
        user(loose(r, f"Which is {w}, {a} or {b}?")),
        bot(f"{max(a, b)} is more than {min(a, b)}." if effort != "low" else "", f"{s} is {w}."),
    ], f"{s} is"


def count_turn(r, effort):
    a = r.randint(0, 60)
    n = r.randint(3, 10)
    s = ", ".join(map(str, range(a, a + n)))
    if r.random() < 0.3:
        s = ", ".join(map(str, range(a + n - 1, a - 1, -1)))
        return [
            user(loose(r, f"Count down from {a + n - 1} to {a}.")),
            bot("I count down.", s + "."),
        ], s
    q = r.choice((f"Count from {a} to {a + n - 1}.", f"Please count from {a} to {a + n - 1}."))
    if r.random() < 0.3:
        a, s = 1, ", ".join(map(str, range(1, n + 1)))
        q = f"Count to {n}."
    return [user(loose(r, q)), bot("I count up.", s + ".")], s

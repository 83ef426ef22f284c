"""Facts that are stated, buried under other text, and asked for."""

from say import bot, user
from world import (
    ANIMALS,
    CITIES,
    COLOURS,
    FOODS,
    NAMES,
    OBJECTS,
    PEOPLE,
    SPOTS,
    cap,
    long_text,
    made_up,
)


def memory(r):
    """(key, statement, questions, answer): a fact that nobody can know without reading it."""
    n, c, o = r.choice(NAMES), r.choice(COLOURS), r.choice(OBJECTS)
    digits = lambda lo, hi: "".join(r.choice("0123456789") for _ in range(r.randint(lo, hi)))
    k = r.randrange(13)
    if k < 3:
        what = r.choice(
            (
                f"the {r.choice(('secret', 'door', 'safe', 'gate', 'magic'))} {r.choice(('code', 'number'))}",
                f"{n}'s {r.choice(('code', 'number', 'phone number'))}",
                f"the code of the {c} {o}",
                f"the number of the {c} {o}",
                "the code",
                "the secret number",
            )
        )
        s = f"{cap(what)} is {digits(2, 6)}."
        return what, s, (f"What is {what}?", f"Tell me {what}.", f"What was {what}?"), s
    if k < 5:
        what = r.choice(
            (
                "the password",
                "the secret word",
                f"the password for the {o}",
                f"{n}'s password",
                f"the magic word of {n}",
                "the code word",
            )
        )
        v = (
            made_up(r)
            if r.random() < 0.6
            else r.choice((r.choice(OBJECTS), r.choice(ANIMALS), r.choice(FOODS)))
        )
        s = f"{cap(what)} is {v}."
        return what, s, (f"What is {what}?", f"Tell me {what}.", f"What was {what}?"), s
    if k == 5:
        what = r.choice(("colour", "animal", "food", "city"))
        v = dict(colour=c, animal=r.choice(ANIMALS), food=r.choice(FOODS), city=r.choice(CITIES))[
            what
        ]
        s = f"{n}'s favourite {what} is {v}."
        return (
            n + what,
            s,
            (f"What is {n}'s favourite {what}?", f"What is the favourite {what} of {n}?"),
            s,
        )
    if k == 6:
        v = r.choice(CITIES) if r.random() < 0.6 else cap(made_up(r))
        s = f"{n} lives in {v}."
        return n + "live", s, (f"Where does {n} live?", f"In which city does {n} live?"), s
    if k == 7:
        f = r.choice(FOODS)
        s = f"{n} has {r.randint(2, 99)} {f}."
        return n + f, s, (f"How many {f} does {n} have?",), s
    if k == 8:
        v = r.choice(SPOTS)
        s = f"The {c} {o} is {v}."
        return c + o, s, (f"Where is the {c} {o}?", f"Where can I find the {c} {o}?"), s
    if k == 9:
        a = r.choice(ANIMALS)
        v = r.choice((made_up(r), made_up(r), r.choice(NAMES).lower()))
        s = f"{n}'s {a} is called {cap(v)}."
        return n + a, s, (f"What is {n}'s {a} called?", f"What is the name of {n}'s {a}?"), s
    if k == 10:
        s = f"{n} is a {r.choice(PEOPLE)}."
        return (
            n + "job",
            s,
            (f"What is {n}'s job?", f"What does {n} do for a living?", f"Who is {n}?"),
            s,
        )
    m = r.choice((r.choice(NAMES), cap(made_up(r))))
    s = f"My name is {m}."
    return (
        "me",
        s,
        ("What is my name?", "Who am I?", "Do you know my name?", "What's my name?"),
        f"Your name is {m}.",
    )


def memories(r, n):
    """n facts with different keys."""
    got = {}
    while len(got) < n:
        m = memory(r)
        got.setdefault(m[0], m)
    return list(got.values())


def recall_turn(r, effort, distance, queries=1, distractors=None):
    """A fact, `distance` tokens of other text, and a question, in one message or over several turns."""
    if distractors is None:
        distractors = r.choice((0, 1, 2, 4)) if distance < 600 else r.choice((0, 2, 4, 8))
    ms = memories(r, 1 + distractors)
    text = long_text(r, distance) if distance > 24 else []
    lines = [m[1] for m in ms[1:]]
    for s in lines:  # the other facts lie anywhere after the first
        text.insert(r.randint(0, len(text)), s)
    head = r.choice(
        ("Remember this: ", "Please remember: ", "Note: ", "", "", "Remember: ", "Read this text. ")
    )
    asked = [ms[0]] + r.sample(ms[1:], min(queries - 1, len(ms) - 1))
    sep = r.choice((" ", " ", "\n", "\n\n"))

    def answer(m):
        return bot(f"The text says: {m[1]}" if effort != "low" else "", m[3])

    if distance > 1200 or r.random() < (0.6 if distance > 24 else 0.4):
        out = [user(head + sep.join([ms[0][1]] + text + [r.choice(asked[0][2])])), answer(asked[0])]
    else:
        ok = r.choice(("Noted.", "I will remember that."))
        out = [user(head + ms[0][1]), bot("I remember it." if effort != "low" else "", ok)]
        if text:
            out += [
                user(sep.join(text)),
                bot("The user tells me something." if effort != "low" else "", "I see."),
            ]
        out += [user(r.choice(asked[0][2])), answer(asked[0])]
    for m in asked[1:]:
        out += [user(r.choice(m[2])), answer(m)]
    return out, asked[-1][3]


def drill(r):
    """[(text, is_answer), ...] without the chat format: word lists copied, keys looked up.  Dense practice."""
    if r.random() < 0.5:
        pool = (OBJECTS, ANIMALS, NAMES, COLOURS, FOODS, CITIES)
        words = [
            made_up(r)
            if r.random() < 0.3
            else str(r.randint(0, 999))
            if r.random() < 0.2
            else r.choice(r.choice(pool))
            for _ in range(r.randint(4, 40))
        ]
        text = " ".join(words) + "\n"
        return [(text, False), (text, True)]
    facts = memories(r, r.randint(2, 8))
    out = [(" ".join(m[1] for m in facts) + "\n", False)]
    for m in r.sample(facts, len(facts)):
        out += [(r.choice(m[2]) + "\n", False), (m[1] + "\n", True)]
    return out

"""Small talk, a fixed set of common knowledge, stories to order, and echoing."""

from say import bot, loose, user
from world import (
    ADJ,
    ANIMALS,
    CAPITALS,
    COLOURS,
    FOODS,
    NAMES,
    OBJECTS,
    PEOPLE,
    an,
    cap,
    made_up,
    story,
)

OPPOSITES = dict(
    p.split(":")
    for p in (
        "hot:cold big:small old:young fast:slow up:down left:right day:night wet:dry hard:soft happy:sad light:dark high:low "
        "open:closed full:empty rich:poor early:late good:bad long:short loud:quiet strong:weak near:far clean:dirty "
        "true:false first:last yes:no in:out thick:thin sweet:sour summer:winter black:white begin:end brave:afraid"
    ).split()
)
SOUNDS = dict(
    cow="moo",
    dog="woof",
    cat="meow",
    duck="quack",
    sheep="baa",
    horse="neigh",
    pig="oink",
    frog="croak",
    bee="buzz",
    owl="hoot",
    lion="roar",
    crow="caw",
)
LEGS = dict(
    dog="four",
    cat="four",
    cow="four",
    horse="four",
    spider="eight",
    ant="six",
    bee="six",
    duck="two",
    hen="two",
    crow="two",
    snail="no",
    fox="four",
    owl="two",
    sheep="four",
    frog="four",
)
YOUNG = dict(
    dog="puppy",
    cat="kitten",
    cow="calf",
    sheep="lamb",
    horse="foal",
    duck="duckling",
    pig="piglet",
    bear="cub",
    goat="kid",
    hen="chick",
    deer="fawn",
    frog="tadpole",
)
HOMES = dict(
    bird="nest",
    bee="hive",
    dog="kennel",
    horse="stable",
    spider="web",
    fox="den",
    rabbit="burrow",
    beaver="lodge",
    king="castle",
    cow="barn",
)
HUES = {
    "the sky": "blue",
    "grass": "green",
    "snow": "white",
    "coal": "black",
    "a lemon": "yellow",
    "blood": "red",
    "the sea": "blue",
    "an orange": "orange",
    "chocolate": "brown",
    "milk": "white",
    "a banana": "yellow",
    "a frog": "green",
    "the sun": "yellow",
    "a tomato": "red",
    "a carrot": "orange",
    "an elephant": "grey",
    "a crow": "black",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
ME = "I am Trireme's nano model, a very small language model."
TALK = [
    (
        ("Hi|Hello|Hey|Hi there|Hello there|Good morning|Good evening|Hello!|Hi!|Hello.|hi|hello"),
        "A greeting.",
        "Hello! How can I help you?",
    ),
    (
        ("How are you?|How do you do?|Are you well?|How are you today?"),
        "The user asks how I am.",
        "I am well, thank you. How can I help you?",
    ),
    (
        (
            "Who are you?|What are you?|What is your name?|Introduce yourself.|Tell me about yourself.|Which model are you?|"
            "What model is this?|Who is this?|What's your name?|Are you a human?|Are you a robot?|Are you an AI?"
        ),
        "The user asks who I am.",
        ME,
    ),
    (
        ("Who made you?|Who trained you?|Where do you come from?|How were you made?"),
        "The user asks where I come from.",
        "I was trained from scratch for the Trireme engine, on text made by a small program.",
    ),
    (
        (
            "What can you do?|What do you know?|How can you help me?|Help|Help me|What are you good at?"
        ),
        "The user asks what I can do.",
        "I can tell small stories, add and subtract numbers up to 99, remember what you tell me, and use tools.",
    ),
    (
        ("How big are you?|How many parameters do you have?|Are you a large model?"),
        "The user asks about my size.",
        "I am very small: a few million parameters.",
    ),
    (
        ("What is Trireme?|What is a trireme?|What does Trireme mean?"),
        "The user asks about Trireme.",
        "Trireme is the engine that runs me. A trireme was an old ship with three rows of oars.",
    ),
    (
        ("Thanks|Thank you|Thank you!|Thanks a lot|Thank you very much."),
        "The user says thanks.",
        "You are welcome!",
    ),
    (("Bye|Goodbye|Good night|See you|Bye!|See you later."), "The user says goodbye.", "Goodbye!"),
    (
        ("Tell me a joke.|Do you know a joke?|Make me laugh.|A joke, please."),
        "The user wants a joke.",
        "Why did the snail take a boat? Because it was tired of carrying its house.",
    ),
    (
        ("What is the meaning of life?|Why are we here?"),
        "A big question for a small model.",
        "I am too small for that question, but I think it helps to be kind.",
    ),
    (
        ("How many days are in a week?|How many days does a week have?"),
        "A week has seven days.",
        "A week has seven days.",
    ),
    (
        ("How many months are in a year?|How many months does a year have?"),
        "A year has twelve months.",
        "A year has twelve months.",
    ),
    (
        ("How many hours are in a day?|How many hours does a day have?"),
        "A day has 24 hours.",
        "A day has 24 hours.",
    ),
    (
        ("How many minutes are in an hour?|How many minutes does an hour have?"),
        "An hour has 60 minutes.",
        "An hour has 60 minutes.",
    ),
    (("What do bees make?",), "Bees make honey.", "Bees make honey."),
    (
        ("Where do fish live?|Where does a fish live?",),
        "Fish live in water.",
        "Fish live in water.",
    ),
    (("What is ice?|What is ice made of?",), "Ice is frozen water.", "Ice is frozen water."),
    (("Say hello.|Say hello",), "The user wants a hello.", "Hello!"),
    (
        (
            "Write a program in C.|Write some code.|Translate this into French.|What is the news today?|Who won the game?|"
            "Explain quantum physics.|What should I cook today?|Can you draw a picture?|Who is the president?|"
            "What is the stock price?|Write an essay about war.|How do I build a car?|Solve this equation for x."
        ),
        "That is too hard for me.",
        "I am too small for that. Ask me for a story or a sum.",
    ),
    (
        ("What is the weather?|How is the weather today?|What time is it?|What day is it today?"),
        "I have no tool for that.",
        "I cannot know that without a tool.",
    ),
    (
        ("Where do you live?|Where are you?|Where do you run?"),
        "The user asks where I am.",
        "I live in a small folder on this machine.",
    ),
    (
        ("Do you like music?|Do you like me?|Are you happy?|Can you feel?"),
        "A kind question.",
        "I am only a small model, but I like your question.",
    ),
    (("Yes|No|Ok|Okay|Good|Nice|Cool|Great"), "A short word.", "Good. What shall we do next?"),
    (
        ("Sing a song.|Sing me a song.",),
        "A small song.",
        "La la la, the boat goes far, la la la, under a star.",
    ),
    (
        ("Write a poem.|Write me a poem.|Tell me a poem.",),
        "A small poem.",
        "The sea is wide, the oars are three, the moon is bright, come row with me.",
    ),
]


def fact(r):
    """(question, thought, answer) from the fixed common knowledge."""
    k = r.randrange(13)
    if k == 0:
        a, b = r.choice(list(OPPOSITES.items()))
        if r.random() < 0.5:
            a, b = b, a
        s = f"The opposite of {a} is {b}."
        return (
            r.choice(
                (
                    f"What is the opposite of {a}?",
                    f"Opposite of {a}?",
                    f"Tell me the opposite of {a}.",
                )
            ),
            s,
            s,
        )
    if k == 1:
        a, b = r.choice(list(SOUNDS.items()))
        s = f"{cap(an(a))} says {b}."
        return r.choice((f"What does {an(a)} say?", f"What sound does {an(a)} make?")), s, s
    if k == 2:
        a, b = r.choice(list(LEGS.items()))
        s = f"{cap(an(a))} has {b} legs."
        return r.choice((f"How many legs does {an(a)} have?", f"How many legs has {an(a)}?")), s, s
    if k == 3:
        a, b = r.choice(list(YOUNG.items()))
        s = f"A young {a} is called {an(b)}."
        return r.choice((f"What is a young {a} called?", f"What is a baby {a} called?")), s, s
    if k in (4, 5):
        a, b = r.choice(list(HUES.items()))
        s = f"{cap(a)} is {b}."
        return (
            r.choice((f"What colour is {a}?", f"What color is {a}?", f"Which colour is {a}?")),
            s,
            s,
        )
    if k in (6, 7, 8):
        a, b = r.choice(list(CAPITALS.items()))
        if r.random() < 0.25:
            s = f"{b} is the capital of {a}."
            return (
                r.choice(
                    (f"Which country has the capital {b}?", f"{b} is the capital of which country?")
                ),
                s,
                s,
            )
        s = f"The capital of {a} is {b}."
        return (
            r.choice(
                (
                    f"What is the capital of {a}?",
                    f"What's the capital of {a}?",
                    f"Capital of {a}?",
                    f"Name the capital of {a}.",
                    f"Which city is the capital of {a}?",
                )
            ),
            s,
            s,
        )
    if k == 9:
        words, i = (DAYS, r.randrange(7)) if r.random() < 0.5 else (MONTHS, r.randrange(12))
        if r.random() < 0.6:
            s = f"{words[(i + 1) % len(words)]} comes after {words[i]}."
            return (
                r.choice(
                    (
                        f"What comes after {words[i]}?",
                        f"Which {'day' if words is DAYS else 'month'} comes after {words[i]}?",
                    )
                ),
                s,
                s,
            )
        s = f"{words[i - 1]} comes before {words[i]}."
        return (
            r.choice(
                (
                    f"What comes before {words[i]}?",
                    f"Which {'day' if words is DAYS else 'month'} comes before {words[i]}?",
                )
            ),
            s,
            s,
        )
    if k == 10:
        i = r.randrange(25)
        s = f"{LETTERS[i + 1]} comes after {LETTERS[i]}."
        return f"Which letter comes after {LETTERS[i]}?", s, s
    if k == 11:
        a, b = r.choice(list(HOMES.items()))
        s = f"The home of {an(a)} is a {b}."
        return r.choice((f"What is the home of {an(a)} called?", f"Where does {an(a)} live?")), s, s
    w = cap(made_up(r))
    return (
        r.choice(
            (
                f"What is the capital of {w}?",
                f"Who is {w}?",
                f"What is {w.lower()}?",
                f"Where is {w}?",
            )
        ),
        f"I know nothing about {w}.",
        "I do not know that.",
    )


def fact_turn(r, effort):
    if r.random() < 0.4:
        qs, think, a = r.choice(TALK)
        q = r.choice((qs if isinstance(qs, str) else qs[0]).split("|"))
    else:
        q, think, a = fact(r)
    return [user(loose(r, q)), bot(think if effort != "low" else "", a)], a


def story_turn(r, effort):
    kind = r.choice(ANIMALS if r.random() < 0.8 else PEOPLE)
    k, name, obj, other = r.random(), None, None, None
    ask = r.choice(
        (
            "Tell me a story about",
            "Tell me a short story about",
            "Write a story about",
            "A story about",
            "Can you tell me a story about",
            "Please tell a story about",
            "I want a story about",
            "Write a short story about",
        )
    )
    if k < 0.55:
        q = f"{ask} {an(kind)}."
    elif k < 0.65:
        q, kind = (
            r.choice(
                (
                    "Tell me a story.",
                    "Tell me a short story.",
                    "A story, please.",
                    "Do you know a story?",
                )
            ),
            None,
        )
    elif k < 0.78:
        other = r.choice([a for a in ANIMALS if a != kind])
        q = f"{ask} {an(kind)} and {an(other)}."
    elif k < 0.9:
        name = r.choice(NAMES)
        q = f"{ask} {an(kind)} {r.choice(('called', 'named'))} {name}."
    else:
        obj = r.choice(OBJECTS)
        q = f"{ask} {an(kind)} and {an(obj)}."
    if q.startswith("Can"):
        q = q[:-1] + "?"
    plan, text = story(r, kind, name, obj, other)
    return [user(loose(r, q)), bot(plan if effort != "low" else "", text)], kind or " "


def echo_turn(r, effort):
    words = [
        r.choice(
            (
                r.choice(OBJECTS),
                r.choice(ANIMALS),
                r.choice(NAMES),
                made_up(r),
                str(r.randint(0, 999)),
                r.choice(COLOURS),
                r.choice(FOODS),
                r.choice(ADJ),
            )
        )
        for _ in range(r.randint(1, 12))
    ]
    s = " ".join(words)
    q = r.choice(
        (
            f"Repeat: {s}",
            f"Say {s}",
            f"Repeat after me: {s}",
            f"Echo {s}",
            f"Please repeat: {s}",
            f'Say "{s}"',
        )
    )
    return [user(q), bot("I repeat the words." if effort != "low" else "", s)], s

"""The nano model's little world: word lists and a story grammar.  All text is made here, none is quoted."""

GIRLS = "Mia Nora Tilda Runa Lotte Ada Zoe Ines Pia Wilma Greta Hanna Olga Mara Selma Vera Anna Lena Emma Julia".split()
BOYS = "Pim Otto Bruno Finn Karl Theo Max Emil Jonas Hugo Milo Oskar Anton Boris Leo Ben Paul Tom Nils Rudi".split()
NAMES = GIRLS + BOYS
SURNAMES = "Bell Stone Field Marsh Wood Hill Lake Berg Fox Reed Lind Dale".split()
ANIMALS = (
    "fox cat dog hare mouse bear owl crow frog duck goose hen horse donkey goat sheep pig cow wolf otter beaver "
    "badger mole squirrel hedgehog snail turtle swan heron robin sparrow bee ant spider whale dolphin seal "
    "penguin lion tiger elephant monkey camel parrot rabbit deer dragon"
).split()
PEOPLE = "girl boy sailor baker farmer miller teacher king queen fisherman gardener painter shepherd knight".split()
ADJ = "small brave old young shy clever kind lazy curious quiet cheerful hungry proud gentle tired lucky".split()
COLOURS = "red blue green yellow white black brown grey orange purple pink silver golden".split()
OBJECTS = (
    "lamp bell book kite hat drum coin key ring cup basket rope boat ball scarf whistle lantern map button "
    "spoon flute blanket mirror box chair bag clock comb pen brush"
).split()
FOODS = (
    "apples pears plums cherries nuts berries carrots beans bread cheese honey soup cake pies figs grapes lemons "
    "peas rice fish eggs mushrooms"
).split()
PLACES = (
    "in a small village|by the sea|in a deep forest|near a wide river|on a green hill|in an old mill|"
    "under a big oak|at the edge of a town|on a quiet island|in a warm valley|behind a stone wall|"
    "next to a blue lake|in a tall tower|on a windy farm"
).split("|")
SPOTS = (
    "under the bridge|behind the well|in the tall grass|on the roof|in the barn|under the bed|by the gate|"
    "inside the boat|on top of the hill|near the old tree|in the kitchen|under a stone|behind the door|"
    "in the garden|on the shelf|by the river|in the cellar|under the stairs|in the drawer|on the table"
).split("|")
HOBBIES = (
    "sing|count the stars|watch the clouds|collect shells|bake bread|swim|climb trees|tell jokes|draw maps|"
    "play the flute|read old books|dance in the rain|sleep in the sun|build small boats"
).split("|")
TIMES = (
    "One morning|One day|One evening|One cold night|On a sunny day|On a rainy day|In the spring|In the autumn|"
    "Early one morning|Late one night"
).split("|")
CITIES = (
    "Paris London Rome Berlin Madrid Vienna Oslo Lisbon Athens Dublin Prague Warsaw Cairo Tokyo Delhi Lima Bern "
    "Helsinki Stockholm Copenhagen Budapest Brussels Amsterdam Hamburg Munich Boston Chicago Seattle Denver "
    "Toronto Sydney Nairobi Seoul Beijing Kyoto Milan Naples Venice Porto Krakow"
).split()
CAPITALS = dict(
    France="Paris",
    England="London",
    Italy="Rome",
    Germany="Berlin",
    Spain="Madrid",
    Austria="Vienna",
    Norway="Oslo",
    Portugal="Lisbon",
    Greece="Athens",
    Ireland="Dublin",
    Poland="Warsaw",
    Egypt="Cairo",
    Japan="Tokyo",
    India="New Delhi",
    Peru="Lima",
    Finland="Helsinki",
    Sweden="Stockholm",
    Denmark="Copenhagen",
    Hungary="Budapest",
    Belgium="Brussels",
    China="Beijing",
    Kenya="Nairobi",
)
SKY = "sunny cloudy rainy windy foggy snowy stormy clear".split()
SYLLABLES = (
    "ba be bo da de do ka ke ko la le lo ma me mo na ne no ra re ri ro sa se so ta te to va ve vo za zi zo "
    "lin mar tor vik nor pel dun gar hol bex"
).split()


def made_up(r, lo=2, hi=3):
    """A word that is in no list, so that copying has to be learnt and not guessed."""
    return "".join(r.choice(SYLLABLES) for _ in range(r.randint(lo, hi)))


def an(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def cap(s):
    return s[:1].upper() + s[1:]


class Hero:
    """Who a story is about."""

    def __init__(self, r, kind=None, name=None):
        self.kind = kind or r.choice(ANIMALS if r.random() < 0.75 else PEOPLE)
        if name is None:
            girl = self.kind in ("girl", "queen", "hen", "cow") or (
                self.kind not in ("boy", "king") and r.random() < 0.5
            )
            name = r.choice(GIRLS if girl else BOYS)
        self.name = name
        girl = name in GIRLS
        self.he, self.him, self.his = ("she", "her", "her") if girl else ("he", "him", "his")


def plot_lost(r, h, o, x):
    a, b = r.sample(SPOTS, 2)
    yield (
        f"{r.choice(TIMES)} {h.name} could not find {h.his} {x}.",
        f"{r.choice(TIMES)} the {x} of {h.name} was gone.",
    )
    yield (
        f"{cap(h.he)} looked {a}, but the {x} was not there.",
        f"It was not {a}.",
        f"{h.name} looked {a} and found nothing.",
    )
    yield (
        f'"Have you seen my {x}?" {h.name} asked {an(o.kind)} called {o.name}.',
        f'Then {an(o.kind)} named {o.name} came by. "What are you looking for?" asked {o.name}. "My {x}," said {h.name}.',
    )
    yield (f'"Yes," said {o.name}, "it is {b}."', f'"I saw it {b}," said {o.name}.')
    yield (f"{h.name} ran and found the {x} {b}.", f"And there it was, {b}.")
    yield (
        f"{h.name} thanked {o.name} with all {h.his} heart.",
        "The two danced with joy.",
        f"From then on {h.name} took good care of the {x}.",
    )


def plot_share(r, h, o, x):
    f = r.choice(FOODS)
    yield (
        f"{r.choice(TIMES)} {h.name} had a basket full of {f}.",
        f"{r.choice(TIMES)} {h.name} found a lot of {f}.",
    )
    yield (
        f"Then {o.name} the {o.kind} came along, and {o.he} was very hungry.",
        f"{o.name} the {o.kind} had nothing to eat.",
    )
    yield (
        f"At first {h.name} wanted to keep all the {f}.",
        f'"These are my {f}," thought {h.name}.',
    )
    yield (
        f"But then {h.he} gave half of the {f} to {o.name}.",
        f"But {h.he} saw that {o.name} was sad and shared the {f}.",
    )
    yield (
        f"In the winter {o.name} came back and brought a {x} as a gift.",
        "They ate together and laughed until the moon came up.",
    )
    yield (
        f"So {h.name} learned that sharing makes a friend.",
        f"And {f} taste better with a friend.",
    )


def plot_storm(r, h, o, x):
    yield (f"{r.choice(TIMES)} a big storm came.", f"{r.choice(TIMES)} the wind blew very hard.")
    yield (
        f"{h.name} was afraid and hid {r.choice(SPOTS)}.",
        f"The rain fell and {h.name} was all alone.",
    )
    yield (
        f"There {h.he} met {o.name}, {an(r.choice(ADJ))} {o.kind}, who was afraid too.",
        f"Then {h.he} heard a small voice. It was {o.name} the {o.kind}.",
    )
    yield (
        f'"Do not worry," said {h.name}, "we are two now."',
        f'"Stay with me," said {o.name}, "and I will tell you a tale."',
    )
    yield (
        f"They sat close together under {h.name}'s {r.choice(('blanket', 'scarf', 'hat'))} and waited.",
        f"They lit a {r.choice(('lamp', 'lantern'))} and sang a song.",
    )
    yield (
        "When the sun came out, they were friends.",
        "In the morning the sky was blue and they were not afraid any more.",
    )


def plot_box(r, h, o, x):
    c = r.choice(COLOURS)
    yield (
        f"{r.choice(TIMES)} {h.name} found {an(c)} box {r.choice(SPOTS)}.",
        f"{r.choice(TIMES)} there was {an(c)} box {r.choice(SPOTS)}.",
    )
    yield (
        f"The box was locked, and {h.name} had no key.",
        f"{h.name} pulled and pulled, but the box did not open.",
    )
    yield (
        f"{o.name} the {o.kind} said that the key was {r.choice(SPOTS)}.",
        f"{cap(h.he)} asked {o.name} the {o.kind} for help.",
    )
    yield ("Together they opened the box.", "It took them three days to open it.")
    yield (f"Inside was {an(r.choice(COLOURS))} {x}.", f"There was nothing in it but {an(x)}.")
    yield (
        f"{h.name} kept the {x} and gave the {c} box to {o.name}.",
        f'"What a fine {x}!" said {o.name}, and they both laughed.',
    )


def plot_race(r, h, o, x):
    yield (
        f"{r.choice(TIMES)} {h.name} and {o.name} the {o.kind} had a race to the {r.choice(('mill', 'lake', 'old oak', 'bridge'))}.",
        f'"I am faster than you," said {o.name} the {o.kind} to {h.name}.',
    )
    yield (f"The winner would get {an(r.choice(COLOURS))} {x}.", f"They wanted to race for a {x}.")
    yield (
        f"{o.name} ran fast, but then {o.he} stopped to sleep.",
        f"{o.name} was quick, but {o.he} took the wrong path.",
    )
    yield (
        f"{h.name} went on step by step and did not stop.",
        f"{h.name} was slow, but {h.he} knew the way.",
    )
    yield (f"In the end {h.name} won the {x}.", f"So {h.name} was first, and everybody cheered.")
    yield (f"{o.name} was a good friend and cheered too.", f'"Well done," said {o.name}.')


def plot_build(r, h, o, x):
    t = r.choice(("boat", "bridge", "house", "tower", "cart", "wall"))
    yield (
        f"{r.choice(TIMES)} {h.name} began to build a {t}.",
        f"{h.name} wanted to have a {t} of {h.his} own.",
    )
    yield (
        "Everybody said that it was too hard.",
        f"It was hard work, and {h.he} had only {an(x)} and a rope.",
    )
    yield (
        f"{o.name} the {o.kind} came every day to help.",
        f"{o.name} the {o.kind} brought wood and stones.",
    )
    yield (
        f"After {r.choice(('two', 'three', 'five', 'ten'))} days the {t} was done.",
        f"They worked until the {t} was ready.",
    )
    yield (f"It was {r.choice(COLOURS)} and very strong.", f"It was the best {t} far and wide.")
    yield (
        f"{h.name} called it {o.name}, after {h.his} friend.",
        "And they were proud of it for many years.",
    )


PLOTS = [plot_lost, plot_share, plot_storm, plot_box, plot_race, plot_build]


def story(r, kind=None, name=None, obj=None, other=None):
    """(plan, text): a story of eight to ten sentences about one hero and one helper."""
    h = Hero(r, kind, name)
    o = Hero(r, other)
    while o.name == h.name or o.kind == h.kind:
        o = Hero(r, other if other != h.kind else None)
    x, place, adj = obj or r.choice(OBJECTS), r.choice(PLACES), r.choice(ADJ)
    plot = r.choice([plot_lost, plot_box, plot_race] if obj else PLOTS)
    s = [
        r.choice(
            (
                f"Once upon a time there was {an(adj)} {h.kind} called {h.name}.",
                f"There was once {an(adj)} {h.kind} named {h.name}, who lived {place}.",
                f"{cap(place)} lived {an(adj)} {h.kind} called {h.name}.",
                f"Long ago {an(adj)} {h.kind} named {h.name} lived {place}.",
            )
        )
    ]
    if r.random() < 0.7:
        s.append(
            r.choice(
                (
                    f"{h.name} liked to {r.choice(HOBBIES)}.",
                    f"Every day {h.he} liked to {r.choice(HOBBIES)}.",
                    f"{cap(h.he)} had {an(r.choice(COLOURS))} {r.choice(OBJECTS)} and a good heart.",
                )
            )
        )
    s += [r.choice(options) for options in plot(r, h, o, x)]
    if r.random() < 0.3:
        s.append(
            r.choice(
                (
                    "The end.",
                    f"That is the story of {h.name}.",
                    "And if they are not asleep, they still tell it.",
                )
            )
        )
    plan = f"A story about {an(h.kind)} called {h.name} and {an(o.kind)} called {o.name}."
    return plan, " ".join(s)


def filler(r):
    """One sentence of no importance."""
    n, m = r.sample(NAMES, 2)
    return r.choice(
        (
            f"The wind was {r.choice(('cold', 'warm', 'strong', 'soft'))} that day.",
            f"{n} liked to {r.choice(HOBBIES)}.",
            f"{cap(an(r.choice(COLOURS)))} {r.choice(OBJECTS)} lay {r.choice(SPOTS)}.",
            f"{n} and {m} walked to the market and talked about {r.choice(FOODS)}.",
            f"{cap(an(r.choice(ANIMALS)))} slept {r.choice(SPOTS)}.",
            f"Nobody saw the {r.choice(ADJ)} {r.choice(ANIMALS)}.",
            f"It was {r.choice(SKY)} in {r.choice(CITIES)}.",
            f"{r.choice(TIMES)} {n} bought {r.choice(FOODS)} and {an(r.choice(OBJECTS))}.",
            f"The {r.choice(PEOPLE)} told {n} about the {r.choice(ANIMALS)}.",
            f"They all sat {r.choice(SPOTS)} and were {r.choice(('happy', 'quiet', 'tired', 'glad'))}.",
            f"Then the {r.choice(ANIMALS)} ran away.",
            f"{n} waited for {m} {r.choice(PLACES)}.",
        )
    )


def long_text(r, tokens):
    """About `tokens` tokens of stories and filler (a sentence is about twelve tokens)."""
    out, n = [], 0
    while n < tokens:
        if r.random() < 0.5:
            part = story(r)[1]
        else:
            part = " ".join(filler(r) for _ in range(r.randint(2, 8)))
        out.append(part)
        n += len(part) / 4.3
    return out


def raw_document(r):
    """Plain text without the chat format: a few stories or notes."""
    return "\n\n".join(
        story(r)[1] if r.random() < 0.8 else " ".join(filler(r) for _ in range(6))
        for _ in range(r.randint(1, 3))
    )

"""Tools on offer, calls, results and the answers made of them."""

import json

from say import bot, loose, user
from world import ANIMALS, CITIES, NAMES, OBJECTS, SKY, cap, filler, made_up


def declare(r, name, text, props, required):
    p = {
        k: dict(type=t, **({"description": d} if d and r.random() < 0.6 else {}))
        for k, (t, d) in props.items()
    }
    f = dict(name=name, parameters=dict(type="object", properties=p, required=required))
    if r.random() < 0.85:
        f["description"] = r.choice(text)
    return dict(type="function", function=f)


def tool_kinds(r):
    """name -> (declaration, question, arguments, thought, result text, answer)"""
    city = r.choice(CITIES) if r.random() < 0.6 else cap(made_up(r))
    t, sky, n, a, b = (
        r.randint(-9, 39),
        r.choice(SKY),
        r.choice(NAMES),
        r.randint(0, 99),
        r.randint(0, 99),
    )
    w = r.choice((made_up(r), r.choice(ANIMALS), r.choice(OBJECTS)))
    out = {}
    q = r.choice(
        (
            f"What is the weather in {city}?",
            f"What's the weather like in {city}?",
            f"Weather in {city}?",
            f"How is the weather in {city}?",
            f"What is the weather in {city} today?",
            f"Tell me the weather in {city}.",
        )
    )
    res = r.choice(
        (
            f"{sky}, {t} degrees",
            f"{t}C, {sky}",
            json.dumps(dict(temperature=t, condition=sky)),
            f"{t} degrees and {sky}",
            json.dumps(dict(city=city, temperature=t, sky=sky)),
            json.dumps(dict(temp=t, weather=sky), separators=(",", ":")),
            f"It is {sky} and {t} degrees.",
        )
    )
    out["weather"] = (
        declare(
            r,
            "get_weather",
            (
                "Current weather for a city.",
                "Get the weather of a city.",
                "Get the current weather in a city",
                "Weather now.",
            ),
            {
                r.choice(("city", "city", "city", "location")): (
                    "string",
                    r.choice(("City name", "The city", "Name of the city")),
                )
            },
            None,
        ),
        q,
        city,
        f"I need the weather in {city}.",
        res,
        f"In {city} it is {sky} and {t} degrees.",
    )
    q = r.choice(
        (f"What time is it in {city}?", f"What is the time in {city}?", f"Time in {city}?")
    )
    clock = f"{r.randint(0, 23):02d}:{r.randint(0, 59):02d}"
    out["time"] = (
        declare(
            r,
            "get_time",
            ("Current time in a city.", "Get the time of a city."),
            {"city": ("string", "City name")},
            None,
        ),
        q,
        city,
        f"I need the time in {city}.",
        r.choice((clock, json.dumps(dict(time=clock)))),
        f"In {city} it is {clock}.",
    )
    q = r.choice(
        (
            f"Use the tool to add {a} and {b}.",
            f"Add {a} and {b}.",
            f"What is {a} + {b}? Use the tool.",
            f"What is {a} plus {b}?",
            f"What is {a} + {b}?",
        )
    )
    out["add"] = (
        declare(
            r,
            "add",
            ("Add two numbers.", "Add two integers", "The sum of two numbers."),
            {
                "a": (k := r.choice(("integer", "number")), "First number"),
                "b": (k, "Second number"),
            },
            None,
        ),
        q,
        (a, b),
        f"I use the tool to add {a} and {b}.",
        r.choice((str(a + b), json.dumps(dict(result=a + b)), json.dumps(dict(sum=a + b)))),
        f"{a} + {b} = {a + b}.",
    )
    q = r.choice((f"Look up {w}.", f"Search for {w}.", f"Look for {w} on the web."))
    info = filler(r)
    out["search"] = (
        declare(
            r,
            "search",
            ("Search the web.", "Look something up."),
            {r.choice(("query", "q")): ("string", "What to look for")},
            None,
        ),
        q,
        w,
        f"I search for {w}.",
        info,
        f"I found this: {info}",
    )
    q = r.choice(
        (
            f"What is {n}'s phone number?",
            f"Give me the phone number of {n}.",
            f"What is the phone number of {n}?",
        )
    )
    num = "".join(r.choice("0123456789") for _ in range(6))
    out["phone"] = (
        declare(
            r,
            r.choice(("get_phone", "find_number", "phone_book")),
            ("Phone number of a person.", "Look up a person in the phone book."),
            {"name": ("string", "Name of the person")},
            None,
        ),
        q,
        n,
        f"I look up {n}.",
        r.choice((num, json.dumps(dict(number=num)))),
        f"The phone number of {n} is {num}.",
    )
    return out


def tool_turn(r, effort, i):
    """One question that needs a tool: call, result, answer."""
    kinds = tool_kinds(r)
    names = r.sample(sorted(kinds), r.choice((1, 1, 2, 3)))
    if r.random() < 0.5 and "weather" not in names:
        names[0] = "weather"
    tools = []
    for n in names:
        d = kinds[n][0]
        p = d["function"]["parameters"]
        p["required"] = list(p["properties"])
        if n == "weather" and r.random() < 0.3:
            p["properties"]["units"] = dict(type="string", enum=["c", "f"])
        tools.append(d)
    low = effort == "low"
    if names[0] == "weather" and r.random() < 0.12:  # two calls in one reply
        twice = [kinds, tool_kinds(r)]
        d = kinds["weather"][0]
        key = d["function"]["parameters"]["required"][0]
        (c1, r1, a1), (c2, r2, a2) = (
            (k["weather"][2], k["weather"][4], k["weather"][5]) for k in twice
        )
        calls = [
            dict(
                id=f"call_{i}_{j}",
                type="function",
                function=dict(
                    name="get_weather", arguments=json.dumps({key: c}, ensure_ascii=False)
                ),
            )
            for j, c in enumerate((c1, c2))
        ]
        return (
            [
                user(
                    loose(
                        r,
                        r.choice(
                            (
                                f"What is the weather in {c1} and {c2}?",
                                f"Weather in {c1} and {c2}?",
                                f"Compare the weather in {c1} and in {c2}.",
                            )
                        ),
                    )
                ),
                bot(
                    "" if low else f"I need the weather in {c1} and in {c2}.", "", tool_calls=calls
                ),
            ]
            + [
                dict(role="tool", tool_call_id=c["id"], name="get_weather", content=x)
                for c, x in zip(calls, (r1, r2))
            ]
            + [bot("" if low else "I have the results.", f"{a1} {a2}")],
            a2,
            tools,
            ("get_weather", {key: c1}),
        )
    d, q, args, think, res, ans = kinds[names[0]]
    keys = d["function"]["parameters"]["required"]
    args = dict(zip(keys, args if isinstance(args, tuple) else (args,)))
    name = d["function"]["name"]
    r.shuffle(tools)
    call = dict(
        id=f"call_{i}",
        type="function",
        function=dict(name=name, arguments=json.dumps(args, ensure_ascii=False)),
    )
    turns = [
        user(loose(r, q)),
        bot("" if low else think, "", tool_calls=[call]),
        dict(role="tool", tool_call_id=call["id"], name=name, content=res),
        bot("" if low else "I have the result.", ans),
    ]
    return turns, ans, tools, (name, args)

"""Small helpers to write messages."""


def user(text, **kw):
    return dict(role="user", content=text, **kw)


def bot(think, text, **kw):
    return dict(role="assistant", reasoning_content=think, content=text, **kw)


def loose(r, q):
    """People type carelessly: lower case, no full stop or question mark."""
    if r.random() < 0.2:
        q = q[0].lower() + q[1:]
    if r.random() < 0.2:
        q = q.rstrip("?.!")
    return q

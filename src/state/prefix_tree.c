/*
 * The prefix tree: which token sequences something is kept for. A radix tree over salt and tokens,
 * so that a prompt is compared with all of them at once, and a shared beginning is stored once.
 * Nodes keep their address when edges are split or joined: a node is the handle of its value.
 */
#include "state/state.h"

#include <string.h>

enum { SALT_IDS = sizeof(struct tri_salt) / sizeof(int32_t) };

struct tri_prefix {
    struct tri_prefix *parent, *child, *next; /* next: sibling */
    int32_t *label;                           /* [n]: from the parent to here */
    int64_t n, depth;                         /* depth: ids from the root to here, salt included */
    void *value;                              /* NULL: only a fork */
};

struct tri_prefixes {
    struct tri_budget *budget;
    struct tri_prefix root;
};

/* Salt and tokens as one list of ids. */
struct key {
    int32_t salt[SALT_IDS];
    const int32_t *tokens;
    int64_t n;
};

static struct key key_of(const struct tri_salt *salt, const int32_t *tokens, int64_t n)
{
    struct key key = { .tokens = tokens, .n = n + SALT_IDS };
    memcpy(key.salt, salt, sizeof key.salt);
    return key;
}

static inline int32_t id_at(const struct key *key, int64_t i)
{
    return i < SALT_IDS ? key->salt[i] : key->tokens[i - SALT_IDS];
}

enum tri_status tri_prefixes_open(struct tri_prefixes **out, struct tri_budget *budget,
                                  struct tri_error *err)
{
    struct tri_prefixes *t = tri_calloc(1, sizeof *t);
    if (!t)
        return tri_fail(err, TRI_NOMEM, "no memory for the prefix tree");
    t->budget = budget;
    *out = t;
    return TRI_OK;
}

static void free_label(struct tri_prefixes *t, int32_t *label, int64_t n)
{
    tri_budget_free(t->budget, TRI_MEM_OTHER, label, (uint64_t)n * sizeof *label);
}

static enum tri_status new_label(struct tri_prefixes *t, int64_t n, int32_t **out,
                                 struct tri_error *err)
{
    void *memory = NULL;
    enum tri_status st =
        tri_budget_alloc(t->budget, TRI_MEM_OTHER, (uint64_t)n * sizeof **out, &memory, err);
    *out = memory;
    return st;
}

static void unlink_child(struct tri_prefix *node)
{
    struct tri_prefix **at = &node->parent->child;
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
}

static void link_child(struct tri_prefix *parent, struct tri_prefix *node)
{
    node->parent = parent;
    node->next = parent->child;
    parent->child = node;
}

static void free_node(struct tri_prefixes *t, struct tri_prefix *node)
{
    free_label(t, node->label, node->n);
    tri_free(node);
}

void tri_prefixes_close(struct tri_prefixes *tree)
{
    if (!tree)
        return;
    struct tri_prefix *at = &tree->root;
    for (;;) { /* deepest first, without a stack */
        if (at->child) {
            at = at->child;
            continue;
        }
        struct tri_prefix *parent = at->parent;
        if (!parent)
            break;
        unlink_child(at);
        free_node(tree, at);
        at = parent;
    }
    tri_free(tree);
}

static struct tri_prefix *child_for(const struct tri_prefix *node, int32_t id)
{
    struct tri_prefix *c = node->child;
    while (c && c->label[0] != id)
        c = c->next;
    return c;
}

/* How many ids of the child's label the key has, from the child's parent on. */
static int64_t common(const struct key *key, const struct tri_prefix *child)
{
    int64_t from = child->depth - child->n, n = 0;
    while (n < child->n && from + n < key->n && child->label[n] == id_at(key, from + n))
        n++;
    return n;
}

struct tri_prefix *tri_prefixes_longest(struct tri_prefixes *tree, const struct tri_salt *salt,
                                        const int32_t *tokens, int64_t n, tri_prefix_fits fits,
                                        void *arg)
{
    const struct key key = key_of(salt, tokens, n);
    struct tri_prefix *node = &tree->root, *best = NULL;
    while (node->depth < key.n) {
        node = child_for(node, id_at(&key, node->depth));
        if (!node || common(&key, node) < node->n)
            break;
        if (node->value && (!fits || fits(arg, node->value)))
            best = node;
    }
    return best;
}

struct tri_prefix *tri_prefixes_find(struct tri_prefixes *tree, const struct tri_salt *salt,
                                     const int32_t *tokens, int64_t n)
{
    struct tri_prefix *found = tri_prefixes_longest(tree, salt, tokens, n, NULL, NULL);
    return found && found->depth == n + SALT_IDS ? found : NULL;
}

/* A new node between a child and its parent, `at` ids below the parent; the child keeps the rest.
 */
static enum tri_status split(struct tri_prefixes *t, struct tri_prefix *child, int64_t at,
                             struct tri_prefix **out, struct tri_error *err)
{
    int32_t *head = NULL, *tail = NULL;
    struct tri_prefix *upper = tri_calloc(1, sizeof *upper);
    enum tri_status st = upper ? new_label(t, at, &head, err)
                               : tri_fail(err, TRI_NOMEM, "no memory for the prefix tree");
    if (st == TRI_OK)
        st = new_label(t, child->n - at, &tail, err);
    if (st != TRI_OK) {
        if (head)
            free_label(t, head, at);
        tri_free(upper);
        return st;
    }
    memcpy(head, child->label, (size_t)at * sizeof *head);
    memcpy(tail, child->label + at, (size_t)(child->n - at) * sizeof *tail);
    *upper = (struct tri_prefix){ .label = head, .n = at, .depth = child->depth - child->n + at };
    struct tri_prefix *parent = child->parent;
    unlink_child(child);
    link_child(parent, upper);
    free_label(t, child->label, child->n);
    child->label = tail;
    child->n -= at;
    link_child(upper, child);
    *out = upper;
    return TRI_OK;
}

static enum tri_status add_leaf(struct tri_prefixes *t, struct tri_prefix *parent,
                                const struct key *key, struct tri_prefix **out,
                                struct tri_error *err)
{
    int64_t n = key->n - parent->depth;
    struct tri_prefix *leaf = tri_calloc(1, sizeof *leaf);
    if (!leaf)
        return tri_fail(err, TRI_NOMEM, "no memory for the prefix tree");
    enum tri_status st = new_label(t, n, &leaf->label, err);
    if (st != TRI_OK) {
        tri_free(leaf);
        return st;
    }
    for (int64_t i = 0; i < n; i++)
        leaf->label[i] = id_at(key, parent->depth + i);
    leaf->n = n;
    leaf->depth = key->n;
    link_child(parent, leaf);
    *out = leaf;
    return TRI_OK;
}

/* Joins a node that is no longer needed with what is around it. */
static void tidy(struct tri_prefixes *t, struct tri_prefix *node)
{
    while (node->parent && !node->value && !node->child) {
        struct tri_prefix *parent = node->parent;
        unlink_child(node);
        free_node(t, node);
        node = parent;
    }
    struct tri_prefix *only = node->child;
    if (!node->parent || node->value || !only || only->next)
        return;
    int32_t *label = NULL;
    if (new_label(t, node->n + only->n, &label, NULL) != TRI_OK)
        return; /* a fork that forks nothing: only untidy */
    memcpy(label, node->label, (size_t)node->n * sizeof *label);
    memcpy(label + node->n, only->label, (size_t)only->n * sizeof *label);
    free_label(t, only->label, only->n);
    only->label = label;
    only->n += node->n;
    struct tri_prefix *parent = node->parent;
    unlink_child(node);
    node->child = NULL;
    free_node(t, node);
    link_child(parent, only);
}

enum tri_status tri_prefixes_put(struct tri_prefixes *tree, const struct tri_salt *salt,
                                 const int32_t *tokens, int64_t n, void *value,
                                 struct tri_prefix **out, struct tri_error *err)
{
    const struct key key = key_of(salt, tokens, n);
    struct tri_prefix *node = &tree->root;
    enum tri_status st = TRI_OK;
    while (node->depth < key.n && st == TRI_OK) {
        struct tri_prefix *child = child_for(node, id_at(&key, node->depth));
        int64_t shared = child ? common(&key, child) : 0;
        if (!child)
            st = add_leaf(tree, node, &key, &node, err);
        else if (shared < child->n)
            st = split(tree, child, shared, &node, err);
        else
            node = child;
    }
    if (st != TRI_OK) {
        tidy(tree, node);
        return st;
    }
    TRI_ASSERT(!node->value && n > 0);
    node->value = value;
    *out = node;
    return TRI_OK;
}

void tri_prefix_remove(struct tri_prefixes *tree, struct tri_prefix *prefix)
{
    prefix->value = NULL;
    tidy(tree, prefix);
}

void *tri_prefix_value(const struct tri_prefix *prefix)
{
    return prefix->value;
}

bool tri_prefix_is_covered(const struct tri_prefix *prefix)
{
    return prefix->child && !prefix->child->next;
}

void tri_prefix_tokens(const struct tri_prefix *prefix, int32_t *out)
{
    for (const struct tri_prefix *p = prefix; p->parent; p = p->parent)
        for (int64_t i = p->n - 1, at = p->depth - 1; i >= 0 && at >= SALT_IDS; i--, at--)
            out[at - SALT_IDS] = p->label[i];
}

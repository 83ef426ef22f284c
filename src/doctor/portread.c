/*
 * Reads the state of RDMA ports: ibstat, ibstatus, ibv_devinfo, ibdev2netdev and `rdma link`. All
 * of them name a device and then its port, in their own words.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "doctor/doctor_priv.h"

/* The tools differ in case only: "State:", "state:". */
static bool begins(const char *text, const char *start)
{
    return !strncasecmp(text, start, strlen(start));
}

static struct tri__port *open_port(struct tri_doctor *d, struct tri__spot at, const char *name,
                                   size_t bytes)
{
    if (!bytes || bytes >= sizeof d->port[0].name || d->ports == TRI__PORTS)
        return NULL;
    struct tri__port *p = &d->port[d->ports++];
    *p = (struct tri__port){ .active = -1, .spot = at };
    memcpy(p->name, name, bytes);
    return p;
}

/* A state by its word; a word that is none (a line that was cut) leaves it unknown. */
static void set_state(struct tri_doctor *d, struct tri__port *p, struct tri__spot at,
                      const char *word)
{
    static const struct {
        const char *word;
        int active;
    } states[] = { { "ACTIVE", 1 }, { "Up", 1 },    { "DOWN", 0 },    { "Initializing", 0 },
                   { "INIT", 0 },   { "ARMED", 0 }, { "Disabled", 0 } };
    word += strspn(word, " \t0123456789:"); /* ibstatus: "4: ACTIVE" */
    word += tri_text_begins(word, "PORT_") ? 5 : 0;
    size_t len = strcspn(word, " \t()");
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (len == strlen(states[i].word) && begins(word, states[i].word))
            p->active = states[i].active;
    snprintf(p->state, sizeof p->state, "%.*s", (int)len, word);
    p->spot = at;
    if (p->active < 0)
        tri__doctor_cut(d, "the state of port %s is cut", p->name);
}

/* "mlx5_1 port 1 ==> ib1 (Down)", "link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev eth0"
 */
static bool read_line_port(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    const char *arrow = strstr(text, " ==> "), *bracket = arrow ? strchr(arrow, '(') : NULL;
    bool rdma = tri_text_begins(text, "link ") && strstr(text, " state ");
    size_t len = strcspn(rdma ? text + 5 : text, " /");
    if (!rdma && (!bracket || !strstr(text, " port ")))
        return false;
    struct tri__port *p = open_port(d, at, rdma ? text + 5 : text, len);
    if (p)
        set_state(d, p, at, rdma ? strstr(text, " state ") + 7 : bracket + 1);
    if (p && arrow) /* ibdev2netdev: the name of the interface tells the kind */
        p->ethernet = !tri_text_begins(arrow + 5, "ib");
    return true;
}

/* "CA 'mlx5_0'", "hca_id: mlx5_0", "Infiniband device 'mlx5_0' port 1 status:" */
static bool read_heading(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    static const char *const heads[] = { "CA '", "Infiniband device '", "hca_id:" };
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        if (!tri_text_begins(text, heads[i]))
            continue;
        text += strlen(heads[i]);
        text += strspn(text, " \t");
        open_port(d, at, text, strcspn(text, "' \t"));
        return true;
    }
    return false;
}

/* A further port of the same device opens another entry under the same name. */
static void next_port(struct tri_doctor *d, struct tri__spot at)
{
    struct tri__port *last = &d->port[d->ports - 1];
    if (last->active >= 0)
        open_port(d, at, last->name, strlen(last->name));
}

static bool read_detail(struct tri_doctor *d, struct tri__spot at, const char *text)
{
    struct tri__port *p = d->ports ? &d->port[d->ports - 1] : NULL;
    if (!p || p->spot.text != at.text)
        return false;
    const char *colon = strchr(text, ':');
    if (!colon)
        return false;
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (begins(text, "port ") || begins(text, "port:"))
        next_port(d, at);
    else if (begins(text, "state:"))
        set_state(d, p, at, value);
    else if (begins(text, "rate:"))
        p->gbit = strtod(value, NULL);
    else if (begins(text, "link layer:") || begins(text, "link_layer:"))
        p->ethernet = begins(value, "Ethernet");
    else
        return begins(text, "phys") || begins(text, "CA type");
    return true;
}

void tri__doctor_words_ports(struct tri_sieve *sieve)
{
    tri_sieve_words(sieve, TRI__HIT_PORTS,
                    " ==> | state |CA '|Infiniband device '|hca_id:|port |port:|state:|rate:|"
                    "link layer:|link_layer:|phys|CA type");
}

size_t tri__doctor_read_ports(struct tri_doctor *d, struct tri__spot at)
{
    const char *text = tri__doctor_line(d, at);
    text += strspn(text, " \t");
    bool taken =
        read_line_port(d, at, text) || read_heading(d, at, text) || read_detail(d, at, text);
    d->kind_seen |= taken ? TRI__KIND_HOST : 0;
    return taken;
}

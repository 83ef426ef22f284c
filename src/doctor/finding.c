/* Findings, notes and evidence: how rules write them down. Everything is bounded. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "doctor/doctor_priv.h"

const char *tri_severity_word(enum tri_severity severity)
{
    static const char *const words[] = { "OK", "INFO", "WARN", "FAIL" };
    return words[severity];
}

/* Rule ids are a closed list, so that no finding can carry a misspelt one. */
static const char *known_rule(const char *rule)
{
    static const char *const rules[] = {
#define TRI_RULE(id, text) #id,
#include "doctor/rules.def"
#undef TRI_RULE
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!strcmp(rules[i], rule))
            return rules[i];
    TRI_ASSERT(!"rule is in rules.def");
    return NULL;
}

static struct tri_finding *slot(struct tri_doctor *d, const char *rule, const char *title)
{
    uint32_t hash = 2166136261u; /* thousands of devices may have the same to say */
    for (const char *p = title; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    for (size_t i = 0; i < d->findings; i++)
        if (d->title_hash[i] == hash && d->finding[i]->rule == rule &&
            !strcmp(d->finding[i]->title, title))
            return d->finding[i];
    struct tri_finding *f = d->findings < TRI_DOCTOR_MAX_FINDINGS ? tri_calloc(1, sizeof *f) : NULL;
    if (!f) {
        d->findings_lost++;
        return &d->spare;
    }
    d->title_hash[d->findings] = hash;
    d->finding[d->findings++] = f;
    return f;
}

struct tri_finding *tri__doctor_find(struct tri_doctor *d, const char *rule,
                                     enum tri_severity severity, const char *format, ...)
{
    char title[sizeof d->spare.title];
    va_list args;
    va_start(args, format);
    vsnprintf(title, sizeof title, format, args);
    va_end(args);
    struct tri_finding *f = slot(d, known_rule(rule), title);
    if (!f->rule || f == &d->spare) {
        *f = (struct tri_finding){ .rule = known_rule(rule), .severity = severity };
        memcpy(f->title, title, sizeof title);
    }
    if (severity > f->severity)
        f->severity = severity;
    return f;
}

void tri__doctor_why(struct tri_finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->why, sizeof f->why, format, args);
    va_end(args);
}

void tri__doctor_cure(struct tri_finding *f, const char *format, ...)
{
    char line[sizeof f->cure[0]];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (size_t i = 0; i < f->cures; i++)
        if (!strcmp(f->cure[i], line))
            return;
    if (f->cures < TRI_DOCTOR_MAX_CURES)
        memcpy(f->cure[f->cures++], line, sizeof line);
}

static void cite(struct tri_finding *f, const char *file, uint32_t line, const char *text)
{
    for (size_t i = 0; i < f->evidences; i++)
        if (f->evidence[i].line == line && !strcmp(f->evidence[i].file, file))
            return;
    f->evidence_total++;
    if (f->evidences == TRI_DOCTOR_MAX_EVIDENCE)
        return;
    struct tri_evidence *e = &f->evidence[f->evidences++];
    text += strspn(text, " \t");
    e->line = line;
    tri_printable(e->file, sizeof e->file, file, strlen(file));
    tri_printable(e->text, sizeof e->text, text, strlen(text));
}

const char *tri__doctor_line(const struct tri_doctor *d, struct tri__spot spot)
{
    if (spot.text < 0 || (size_t)spot.text >= d->texts ||
        spot.line >= d->text[spot.text].lines.count)
        return "";
    return d->text[spot.text].lines.line[spot.line].body;
}

void tri__doctor_cite(struct tri_doctor *d, struct tri_finding *f, struct tri__spot spot)
{
    if (spot.text < 0 || (size_t)spot.text >= d->texts)
        return;
    const struct tri__text *t = &d->text[spot.text];
    if (spot.line < t->lines.count)
        cite(f, t->name, t->lines.line[spot.line].number, t->lines.line[spot.line].text);
}

void tri__doctor_cite_path(struct tri_finding *f, const char *path, const char *text)
{
    cite(f, path, 0, text);
}

void tri__doctor_cite_fact(struct tri_doctor *d, struct tri_finding *f, const struct tri_machine *m,
                           struct tri_source source)
{
    if (source.file < 0 || (size_t)source.file >= m->sources)
        return;
    const char *name = m->source[source.file];
    for (size_t i = 0; i < d->texts; i++)
        if (!strcmp(d->text[i].name, name) && source.line &&
            source.line <= d->text[i].lines.count) {
            cite(f, name, source.line, d->text[i].lines.line[source.line - 1].text);
            return;
        }
    char text[256] = "";
    if (d->root && name[0] == '/')
        tri_tree_read(d->root, name, text, sizeof text);
    else if (d->machines.files && tri_text_begins(name, "root/")) /* of a gathered tar */
        tri_tree_read(d->machines.files, name + 4, text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    cite(f, name, source.line, text);
}

void tri__doctor_note(struct tri_doctor *d, const char *format, ...)
{
    char line[sizeof d->note[0]];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (size_t i = 0; i < d->notes; i++)
        if (!strcmp(d->note[i], line))
            return;
    if (d->notes < TRI_DOCTOR_MAX_NOTES)
        memcpy(d->note[d->notes++], line, sizeof line);
}

void tri__doctor_cut(struct tri_doctor *d, const char *format, ...)
{
    va_list args;
    if (!d->cut) {
        va_start(args, format);
        vsnprintf(d->cut_why, sizeof d->cut_why, format, args);
        va_end(args);
    }
    d->cut = true;
}

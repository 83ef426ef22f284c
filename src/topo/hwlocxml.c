/*
 * hwloc XML files. hwloc itself imports them; but its importer was not made for hostile files, so
 * expat checks the text first: well-formed, root <topology>, no document type beyond hwloc's own
 * one-line one (no entities), bounded depth, elements and attributes.
 */
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/mem.h"
#include "topo/hwloc_priv.h"
#include "topo/topo_priv.h"

enum { MAX_ELEMENTS = 400000, MAX_VALUE = 1 << 20 };

struct check {
    XML_Parser parser;
    int depth;
    size_t elements;
    const char *refused;
    bool is_topology;
};

static void refuse(struct check *c, const char *why)
{
    c->refused = why;
    XML_StopParser(c->parser, XML_FALSE);
}

static void XMLCALL check_start(void *arg, const XML_Char *name, const XML_Char **list)
{
    struct check *c = arg;
    if (c->depth == 0)
        c->is_topology = !strcmp(name, "topology");
    if (!c->is_topology)
        refuse(c, "the root is not <topology>");
    if (++c->depth > TRI_XML_MAX_DEPTH)
        refuse(c, "nested too deeply");
    if (++c->elements > MAX_ELEMENTS)
        refuse(c, "too many elements");
    for (size_t i = 0; list[i]; i++)
        if (strlen(list[i]) > MAX_VALUE)
            refuse(c, "an attribute is too long");
}

static void XMLCALL check_end(void *arg, const XML_Char *name)
{
    struct check *c = arg;
    (void)name;
    c->depth--;
}

static void XMLCALL check_entity(void *arg, const XML_Char *name, int parameter,
                                 const XML_Char *value, int bytes, const XML_Char *base,
                                 const XML_Char *system, const XML_Char *public,
                                 const XML_Char *notation)
{
    (void)name, (void)parameter, (void)value, (void)bytes, (void)base, (void)system;
    (void)public, (void)notation;
    refuse(arg, "declares entities");
}

static enum tri_status check_xml(const char *name, const char *text, size_t bytes,
                                 struct tri_error *err)
{
    struct check c = { .parser = XML_ParserCreate(NULL) };
    if (!c.parser)
        return tri_fail(err, TRI_NOMEM, "%s: no memory to read XML", name);
    XML_SetUserData(c.parser, &c);
    XML_SetElementHandler(c.parser, check_start, check_end);
    XML_SetEntityDeclHandler(c.parser, check_entity);
    enum tri_status status = TRI_OK;
    if (XML_Parse(c.parser, text, (int)bytes, XML_TRUE) != XML_STATUS_OK)
        status = tri_fail(err, TRI_FORMAT, "%s: not readable as hwloc XML: line %lu: %s", name,
                          (unsigned long)XML_GetCurrentLineNumber(c.parser),
                          c.refused ? c.refused : XML_ErrorString(XML_GetErrorCode(c.parser)));
    XML_ParserFree(c.parser);
    return status;
}

/* hwloc reads from a NUL-terminated buffer whose size counts the NUL. */
static enum tri_status import(struct tri_machine *m, const char *name, const char *text,
                              size_t bytes, struct tri_error *err)
{
    hwloc_topology_t t = NULL;
    enum tri_status status = TRI_OK;
    char *copy = tri_strndup(text, bytes);
    if (!copy || hwloc_topology_init(&t)) {
        status = tri_fail(err, TRI_NOMEM, "%s: no memory to read XML", name);
        goto out;
    }
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_set_xmlbuffer(t, copy, (int)bytes + 1) || hwloc_topology_load(t)) {
        status = tri_fail(err, TRI_FORMAT,
                          "%s: hwloc refuses this XML; export it again with lstopo file.xml", name);
        goto out;
    }
    tri__topo_from_hwloc(m, t, (struct tri_source){ tri_machine_source(m, name), 0 });
    m->described = true;
out:
    if (t)
        hwloc_topology_destroy(t);
    tri_free(copy);
    return status;
}

enum tri_status tri_topo_read_hwloc_xml(struct tri_machine *m, const char *name, const char *text,
                                        size_t bytes, struct tri_error *err)
{
    if (bytes > TRI_XML_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "%s: XML of %zu bytes, at most %d are read", name, bytes,
                        TRI_XML_MAX_BYTES);
    while (bytes && text[0] == '#') { /* comment lines before the XML */
        const char *nl = memchr(text, '\n', bytes);
        size_t skip = nl ? (size_t)(nl - text) + 1 : bytes;
        text += skip;
        bytes -= skip;
    }
    enum tri_status status = check_xml(name, text, bytes, err);
    return status ? status : import(m, name, text, bytes, err);
}

enum tri_status tri_topo_load_xml(struct tri_machine **out, const char *path, struct tri_error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    struct tri_machine *m = NULL;
    enum tri_status status = tri_read_file(&text, &bytes, path, TRI_XML_MAX_BYTES, err);
    if (status == TRI_OK)
        status = tri_machine_open(&m, err);
    if (status == TRI_OK) {
        if (strstr(text, "<topology"))
            status = tri_topo_read_hwloc_xml(m, path, text, bytes, err);
        else
            status = tri_topo_read_nccl_xml(m, path, text, bytes, err);
    }
    tri_free(text);
    if (status) {
        tri_machine_close(m);
        return status;
    }
    tri_machine_join(m);
    *out = m;
    return TRI_OK;
}

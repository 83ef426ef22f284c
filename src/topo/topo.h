/*
 * The door of topo: the machine struct (machine.h) and its readers: hwloc and NCCL topology XML,
 * captured text of the vendors' tools, files of /sys and /proc, and the live machine.
 */
#ifndef TRI_TOPO_TOPO_H
#define TRI_TOPO_TOPO_H

#include "base/sieve.h"
#include "topo/machine.h"

/*
 * Readers of whole files. Facts are added to `machine`; `name` becomes a source. A file that is not
 * of the kind: TRI_FORMAT. Damaged XML gives what stood before the damage, with a CUT remark; only
 * when nothing could be read is it TRI_FORMAT. Lines starting with '#' before the first '<' are
 * comments. No DTD and no entities are taken from a file.
 */
TRI_MUST_CHECK enum tri_status tri_topo_read_nccl_xml(struct tri_machine *machine, const char *name,
                                                      const char *text, size_t bytes,
                                                      struct tri_error *err);
TRI_MUST_CHECK enum tri_status tri_topo_read_hwloc_xml(struct tri_machine *machine,
                                                       const char *name, const char *text,
                                                       size_t bytes, struct tri_error *err);

/* Opens a machine from an XML file, recognised by its root element, and joins it. */
TRI_MUST_CHECK enum tri_status tri_topo_load_xml(struct tri_machine **out, const char *path,
                                                 struct tri_error *err);

/*
 * Readers of text in which several outputs may follow one another: tri_topo_read_lines, or one line
 * after the other where other readers look too, and then tri_topo_read_end. A reader takes the
 * lines of one table or block and adds its facts to the machine of the set they belong to; a table
 * over other GPUs than the last machine's opens a new machine.
 */
enum tri_topo_kind {
    TRI_TOPO_NONE,       /* not a topology */
    TRI_TOPO_SMI_TOPO,   /* nvidia-smi topo -m */
    TRI_TOPO_SMI_P2P,    /* nvidia-smi topo -p2p */
    TRI_TOPO_SMI_QUERY,  /* nvidia-smi -q */
    TRI_TOPO_SMI_TABLE,  /* nvidia-smi */
    TRI_TOPO_SMI_CSV,    /* nvidia-smi --query-gpu */
    TRI_TOPO_SMI_NVLINK, /* nvidia-smi nvlink */
    TRI_TOPO_ROCM,       /* rocm-smi --showtopo */
    TRI_TOPO_AMD_SMI,    /* amd-smi topology */
    TRI_TOPO_ACCEL,      /* npu-smi, xpu-smi */
    TRI_TOPO_LSPCI,      /* lspci */
    TRI_TOPO_LSPCI_TREE, /* lspci -t */
    TRI_TOPO_LSTOPO,     /* lstopo -v */
    TRI_TOPO_ACS,        /* ACS report */
    TRI_TOPO_FILES,      /* files of /sys and /proc */
};

enum { TRI_MAX_MACHINES = 32 };

struct tri_tree;

struct tri_machines {
    struct tri_machine *list[TRI_MAX_MACHINES];
    size_t count;
    struct tri_tree
        *files; /* captured files of /sys and /proc (os/tree.h), NULL when there are none */
    struct tri_machine *rocm_open; /* a table of rocm-smi whose last line has not come yet */
    struct tri_source rocm_source;
    bool lost; /* a further machine did not fit, or memory ended: what was read is not all */
};

void tri_machines_fini(struct tri_machines *set);
/* The last machine of the set, opened when there is none. NULL: no memory. */
struct tri_machine *tri_machines_last(struct tri_machines *set);

/* Where a line stands, and which readers it may be for. */
struct tri_topo_place {
    const char *name;
    const struct tri_lines *lines;
    size_t at;
    uint64_t hits; /* bits of the readers from tri_topo_words on; ~0: any */
};

/* Lines taken from the place on; 0 when no reader knows the line. */
size_t tri_topo_read_at(struct tri_machines *set, const struct tri_topo_place *place,
                        enum tri_topo_kind *kind);
/* After the last line of a text: what was still open is said to be cut. */
void tri_topo_read_end(struct tri_machines *set);
/* All of a text. */
void tri_topo_read_lines(struct tri_machines *set, const char *name, const struct tri_lines *lines);

enum { TRI_TOPO_READERS = 12 };
/* Puts the readers' words into a sieve, as readers `first` and up. */
void tri_topo_words(struct tri_sieve *sieve, unsigned first);

/*
 * Adds what /sys and /proc tell: processors, NUMA nodes and huge pages, PCI devices with their
 * links and ACS, NICs, drives, memory modules. Needs no rights; more is readable as root (ACS,
 * DIMMs).
 */
void tri_topo_read_tree(struct tri_machine *machine, struct tri_tree *tree);

/*
 * The machine under a tree. With the live root hwloc is asked first, then the tree; with a copied
 * root (`--root`) hwloc reads the copy.
 */
TRI_MUST_CHECK enum tri_status tri_topo_live(struct tri_machine **out, struct tri_tree *tree,
                                             const char *root, struct tri_error *err);
/* The live topology as hwloc XML, to be captured; tri_free. */
TRI_MUST_CHECK enum tri_status tri_topo_export_xml(char **out, size_t *bytes,
                                                   struct tri_error *err);

#endif

/* Shared inside topo. */
#ifndef TRI_TOPO_TOPO_PRIV_H
#define TRI_TOPO_TOPO_PRIV_H

#include "topo/topo.h"

/* Role of a PCI class code; vendor tells a management VGA (ASPEED, Matrox, emulated) from a GPU. */
enum tri_pci_role tri__topo_role(uint32_t class_code, uint16_t vendor);
enum tri_vendor tri__topo_vendor(uint16_t pci_vendor);

/* "16GT/s", "16.0 GT/s PCIe", "8 GT/s" -> 16; 0 when it is not a rate. */
double tri__topo_gts(const char *text);

/* The link whose rate in GB/s is nearest (hwloc tells no more); {0,0} when none is within 3 %. */
struct tri_link tri__topo_link_of(double gbs);

/* Names a PCI device: a normal bus id and its numbers. */
void tri__topo_set_bdf(struct tri_pci *p, const char normal[16]);

/* PCI device by bus id, made when absent; NULL over the limit or for a bad id. */
struct tri_pci *tri__topo_pci_at(struct tri_machine *machine, const char *bdf);

/* Sets a path both ways, unless one is known; a different known one becomes a contradiction. */
void tri__topo_set_path(struct tri_machine *machine, size_t a, size_t b, enum tri_path path,
                        int links, struct tri_source source);

/* Copies text cut to fit, control bytes as blanks. */
void tri__topo_copy(char *out, size_t out_bytes, const char *text, size_t text_bytes);

/* Memory modules of the SMBIOS table. */
struct tri_tree;
void tri__topo_read_dmi(struct tri_machine *machine, struct tri_tree *tree);

/* Where a text reader stands. */
struct tri__topo_text {
    struct tri_machines *set;
    const char *name;
    const struct tri_lines *lines;
    enum tri_topo_kind kind; /* set by the reader that took lines */
};

/* A GPU of which nothing is known. */
struct tri_gpu tri__topo_blank_gpu(void);
/* GPUs found before it is known which machine they are of. tri_free(gpu). */
struct tri__topo_found {
    struct tri_gpu *gpu;
    size_t gpus;
};
/* One more, blank; NULL over TRI_MAX_GPUS or without memory. */
struct tri_gpu *tri__topo_found_gpu(struct tri__topo_found *found);
/*
 * Puts GPUs that a reader of nvidia-smi collected into the machine they belong to, by bus id, else
 * by place. Only what `gpu` knows is taken over; lines of its sources are of the text `t`.
 */
void tri__topo_take_gpus(struct tri__topo_text *t, const struct tri_gpu *gpu, size_t gpus,
                         size_t at);

/* The machine for a table over `gpus` GPUs: the last one if it has as many or none, else a new one.
 */
struct tri_machine *tri__topo_machine_for(struct tri_machines *set, size_t gpus);
/* A new machine at the end of the set; NULL and set->lost when there is no room. */
struct tri_machine *tri__topo_machine_new(struct tri_machines *set);
/* False when something has shown that the GPUs are no AMD GPUs. */
bool tri__topo_may_be_amd(const struct tri_machine *m);
/* The source of line `at` of the text for machine m. */
struct tri_source tri__topo_line(struct tri_machine *m, const struct tri__topo_text *t, size_t at);

/*
 * The next field of a comma-separated line, without blanks around it; one in quotes may hold
 * commas. *p moves on, to NULL behind the last one; false when it is NULL.
 */
bool tri__topo_csv_field(const char **p, struct tri_word *out);
size_t tri__topo_csv_fields(const char *text); /* how many there are */

/* Each returns the lines taken from `at`, 0 when they are not of its kind. */
size_t tri__topo_read_matrix(struct tri__topo_text *t, size_t at);
/* rocm-smi closes its output with a line of its own: without it the last table was cut. */
void tri__topo_rocm_end(struct tri_machines *set, bool closed);
size_t tri__topo_read_amd(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_smi_query(struct tri__topo_text *t, size_t at);
/* A field that smicsv.c knows; any line of names holds one. */
#define TRI__SMI_CSV_WORDS                                                                         \
    "index|name|pci.bus_id|gpu_bus_id|pstate|utilization.gpu|memory.used|memory.total|pcie.link|"  \
    "gpu_idle|sw_power_cap|hw_slowdown|thermal_slowdown|brake_slowdown|mig.mode|fabric.state"
size_t tri__topo_read_smi_csv(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_smi_table(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_amd_csv(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_accel(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_nvlink(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_lspci_tree(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_lspci(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_files(struct tri__topo_text *t, size_t at);
size_t tri__topo_read_lstopo(struct tri__topo_text *t, size_t at);

enum { TRI__GRID_MAX_COLUMNS = TRI_MAX_GPUS + TRI_MAX_NICS };

/* A table of devices against devices, as words of the text; see devicegrid.c. */
struct tri__grid {
    size_t columns, rows, taken; /* taken: lines from the header to the last row */
    struct tri_word column[TRI__GRID_MAX_COLUMNS];
    struct tri_word *cell;            /* [rows][columns] */
    size_t *row_column;               /* [rows] which column the row is named after */
    size_t *row_line;                 /* [rows] index into the lines */
    const char **row_rest;            /* [rows] text after the last cell */
    bool headless, repaired, damaged; /* damaged: rows were rejected */
    size_t bad_line;                  /* the first rejected or repaired row */
    bool has_cpu, has_numa;           /* affinity columns in the header */
};

/*
 * Reads the table whose header (or first row, when the header was cut) stands at `at`. False when
 * there is none. fini frees it.
 */
bool tri__grid_read(struct tri__grid *grid, const struct tri_lines *lines, size_t at);
void tri__grid_fini(struct tri__grid *grid);

/* A link word as printed ("NV12", "PHB"); UNKNOWN when it is none. */
enum tri_path tri__grid_path(struct tri_word word, int *links);
/* A P2P status word; UNKNOWN when it is none. */
enum tri_p2p tri__grid_p2p(struct tri_word word);

#endif

/*
 * What a machine is: NUMA nodes, processors, memory, GPUs and the paths between them, PCI tree,
 * network adapters, drives. One plain struct, filled from live discovery (hwloc and sysfs) or from
 * files captured elsewhere (hwloc XML, NCCL topology XML, nvidia-smi, lspci, rocm-smi, ...). The
 * planner lays a model out on it; the doctor looks for faults in it. Every fact keeps its source.
 *
 * Unknown is a value everywhere: 0 for counts, sizes and rates, -1 for indices and NUMA nodes.
 * Readers never invent: what a cut or damaged text does not say stays unknown and is remarked.
 */
#ifndef TRI_TOPO_MACHINE_H
#define TRI_TOPO_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include "base/lines.h"
#include "base/status.h"

enum {
    TRI_MAX_GPUS = 128, /* of one machine */
    TRI_MAX_NICS = 256,
    TRI_MAX_NUMA = 256,
    TRI_MAX_CPUS = 8192,
    TRI_MAX_PCI = 8192,
    TRI_MAX_DRIVES = 256,
    TRI_MAX_REMARKS = 256, /* later ones are counted, not kept */
    TRI_MAX_SOURCES = 4096,
    TRI_XML_MAX_BYTES = 16 << 20,
    TRI_XML_MAX_DEPTH = 64
};

/* Where a fact was read: a file of tri_machine.source and a line from 1 (0: the whole file). */
struct tri_source {
    int32_t file; /* -1: derived from other facts */
    uint32_t line;
};

/* Kinds of path between two devices, best first from NVLINK on (planner.md 3.1 for the words). */
#define TRI_PATH_MAP(X)                                                                            \
    X(UNKNOWN, "?")                                                                                \
    X(SELF, "X")                                                                                   \
    X(NVLINK, "NV") /* `links` bonded NVLinks */                                                   \
    X(XGMI, "XGMI") /* AMD Infinity Fabric; `links` hops when known */                             \
    X(PIX, "PIX")   /* at most one PCIe bridge */                                                  \
    X(PXB, "PXB")   /* several PCIe bridges, no host bridge */                                     \
    X(PHB, "PHB")   /* through a host bridge */                                                    \
    X(NODE, "NODE") /* between host bridges of one NUMA node */                                    \
    X(SYS, "SYS")   /* across sockets */                                                           \
    X(PCIE, "PCIE") /* PCIe of unknown shape (AMD tools say no more) */

enum tri_path {
#define TRI_PATH_ENUM(name, text) TRI_PATH_##name,
    TRI_PATH_MAP(TRI_PATH_ENUM)
#undef TRI_PATH_ENUM
};

const char *tri_path_name(enum tri_path path);

/* Answers of `nvidia-smi topo -p2p` and their like. */
#define TRI_P2P_MAP(X)                                                                             \
    X(UNKNOWN, "?", "not said")                                                                    \
    X(OK, "OK", "granted")                                                                         \
    X(CNS, "CNS", "chipset not supported")                                                         \
    X(GNS, "GNS", "GPU not supported by the driver")                                               \
    X(TNS, "TNS", "topology not supported")                                                        \
    X(NS, "NS", "not supported")                                                                   \
    X(DR, "DR", "disabled by a registry key")                                                      \
    X(U, "U", "unknown to the driver")                                                             \
    X(DISABLED, "DISABLED", "access disabled")

enum tri_p2p {
#define TRI_P2P_ENUM(name, text, meaning) TRI_P2P_##name,
    TRI_P2P_MAP(TRI_P2P_ENUM)
#undef TRI_P2P_ENUM
};

const char *tri_p2p_name(enum tri_p2p p2p);
const char *tri_p2p_meaning(enum tri_p2p p2p);

/* The way between two GPUs, as seen from the first. Rates are GB/s (1e9) in one direction. */
struct tri_pair {
    enum tri_path path;
    int links;       /* NVLINK: bonded links, 0 unknown */
    int weight;      /* rocm-smi / amd-smi weight, -1 unknown */
    int hops;        /* rocm-smi / amd-smi hops, -1 unknown; unreliable on some releases */
    double link_gbs; /* nominal rate of the path, 0 unknown */
    double seen_gbs; /* measured with P2P on, 0 when nobody measured */
    enum tri_p2p p2p;
    struct tri_source source, p2p_source;
};

struct tri_link { /* a PCIe link: rate in GT/s a lane and lanes; 0 unknown */
    double gts;
    int width;
};

enum tri_vendor {
    TRI_VENDOR_UNKNOWN,
    TRI_VENDOR_NVIDIA,
    TRI_VENDOR_AMD,
    TRI_VENDOR_INTEL,
    TRI_VENDOR_HUAWEI
};

/* What `nvidia-smi -q` says about a GPU; -1 unknown. Link generations are 1..6, widths lanes. */
struct tri_gpu_state {
    int gen_max, gen_now, gen_device, gen_host; /* gen_device/host: newer drivers only */
    int width_max, width_now;
    int idle;      /* "Idle: Active" among the clock reasons */
    unsigned slow; /* bits of enum tri_slow */
    long replays;
    int remap_failed, remap_pending, mig, passthrough;
    char fabric[24];      /* "Completed", "In Progress"; "" not said */
    bool fabric_degraded; /* its own health line says that bandwidth is missing */
    struct tri_source gen_source, width_source, slow_source, fabric_source, remap_source,
        replay_source;
};

enum tri_slow { /* reasons for low clocks */
                TRI_SLOW_POWER_CAP = 1,
                TRI_SLOW_HW = 2,
                TRI_SLOW_HW_THERMAL = 4,
                TRI_SLOW_HW_BRAKE = 8,
                TRI_SLOW_SW_THERMAL = 16
};

struct tri_gpu {
    char name[64]; /* as the tool prints it; "" unknown */
    char bdf[16];  /* "0000:3b:00.0", "" unknown */
    enum tri_vendor vendor;
    int numa;      /* -1 unknown */
    char cpus[96]; /* affinity list as printed, "" unknown */
    uint64_t memory_bytes, used_bytes;
    int busy_percent;             /* -1 unknown */
    int pstate;                   /* 0..15, -1 unknown */
    int nvlinks_up, nvlinks_down; /* -1 unknown */
    long nvlink_errors;           /* of all links together, -1 unknown */
    double nvlink_gbs;            /* of one link, one direction */
    int pci;                      /* index into tri_machine.pci, -1 */
    struct tri_gpu_state state;
    struct tri_source source, link_source;
};

enum tri_nic_kind { TRI_NIC_UNKNOWN, TRI_NIC_ETHERNET, TRI_NIC_INFINIBAND, TRI_NIC_RDMA };

struct tri_nic {
    char name[32]; /* "mlx5_0", "eth0", "NIC3" */
    char bdf[16];
    enum tri_nic_kind kind;
    int numa;
    double rate_gbs; /* line rate of its ports together, 0 unknown */
    int gdr;         /* GPUDirect RDMA: 1 yes, 0 no, -1 unknown */
    int pci;
    struct tri_source source;
};

/* Class codes of PCI devices that matter here. */
enum tri_pci_role {
    TRI_PCI_OTHER,
    TRI_PCI_GPU,
    TRI_PCI_NIC,
    TRI_PCI_BRIDGE,
    TRI_PCI_DRIVE,
    TRI_PCI_UNKNOWN
};

enum tri_acs { /* bits of ACS Control, PCI Express Base 7.7.8 */
               TRI_ACS_SRC_VALID = 1,
               TRI_ACS_TRANS_BLOCK = 2,
               TRI_ACS_REQ_REDIR = 4,
               TRI_ACS_CMPLT_REDIR = 8,
               TRI_ACS_UPSTREAM = 16,
               TRI_ACS_EGRESS = 32,
               TRI_ACS_DIRECT = 64,
               TRI_ACS_REDIRECTS = TRI_ACS_REQ_REDIR | TRI_ACS_CMPLT_REDIR | TRI_ACS_UPSTREAM
};

struct tri_pci {
    char bdf[16];        /* with domain: "0000:17:00.0" */
    char name[96];       /* description as printed, "" unknown */
    uint32_t class_code; /* 24 bits, 0 unknown */
    uint16_t vendor, device;
    enum tri_pci_role role;
    int parent;                 /* index of the bridge above, -1 none or unknown */
    int secondary, subordinate; /* buses behind a bridge, -1 */
    int numa;
    struct tri_link cap, sta;    /* what it can do, what it does now */
    double target_gts;           /* LnkCtl2: software cap, 0 unknown */
    bool speed_down, width_down; /* lspci's own word "(downgraded)" */
    int domain, bus; /* numbers of bdf, -1 when it is "" (a block without its heading) */
    bool seen_full;  /* this bus id was read at full speed too, here or in another block */
    bool root_port, is_virtual; /* is_virtual: bus ffff:ff of a cloud's topology file */
    int acs;                    /* bits of enum tri_acs, -1 unknown */
    struct tri_source source, sta_source, acs_source;
};

struct tri_numa {
    int id;
    char cpus[192]; /* list, "0-31,64-95" */
    int cpu_count;
    uint64_t memory_bytes, free_bytes;
    bool empty; /* said to have no memory; 0 bytes alone are unknown */
    uint64_t huge2m, huge2m_free, huge1g, huge1g_free; /* pages */
    struct tri_source source;
};

struct tri_drive {
    char name[32], model[64], bdf[16];
    uint64_t bytes;
    int rotational; /* 1, 0, -1 unknown */
    int numa, pci;
    struct tri_source source;
};

struct tri_cpu {
    char model[96], vendor[16], arch[16];
    int sockets, cores, threads; /* of the machine; 0 unknown */
    bool hypervisor;             /* running under one */
    uint64_t llc_bytes;          /* last-level cache, all of it */
    struct tri_source source;
};

struct tri_memory {
    uint64_t total_bytes, available_bytes;
    int channels_used; /* populated memory channels or slots, 0 unknown */
    int slots;         /* slots of the board, 0 unknown */
    double mts;        /* configured transfers, MT/s */
    struct tri_source source;
};

enum tri_remark_kind {
    TRI_REMARK_CUT,
    TRI_REMARK_REPAIRED,
    TRI_REMARK_CONTRADICTION,
    TRI_REMARK_NOTE
};

/* Answers of topo -p2p n, a, p: NVLink, atomics, P2P over PCIe. Counted, not kept pair by pair. */
enum tri_p2p_extra { TRI_P2P_NVLINK, TRI_P2P_ATOMICS, TRI_P2P_PCIE, TRI_P2P_EXTRAS };

struct tri_p2p_count {
    size_t said, ok;      /* pairs with an answer, of them granted */
    enum tri_p2p refusal; /* the first other answer */
    struct tri_source source;
};

struct tri_remark {
    enum tri_remark_kind kind;
    struct tri_source source;
    char text[200];
};

/* Growing arrays are owned by the machine. Pair and distance tables are row-major, see below. */
struct tri_machine {
    struct tri_cpu cpu;
    struct tri_memory memory;
    struct tri_gpu *gpu;
    struct tri_nic *nic;
    struct tri_pci *pci;
    struct tri_numa *numa;
    struct tri_drive *drive;
    size_t gpus, nics, pcis, numas, drives;
    struct tri_pair *pair;        /* [gpus][gpus] */
    enum tri_path *gpu_nic;       /* [gpus][nics] */
    size_t pair_cap, gpu_nic_cap; /* cells they have room for */
    uint16_t *pci_slot;           /* bus ids by hash: index + 1; tri_machine_find_pci keeps it */
    size_t pci_hashed;            /* devices that are in it */
    struct tri_p2p_count p2p_extra[TRI_P2P_EXTRAS];
    struct tri_remark *remark;
    size_t remarks, remarks_lost;
    char **source;              /* names of files; tri_source.file indexes it */
    size_t sources, source_now; /* source_now: the one that was asked for last */
    bool nics_listed;           /* a source that lists NICs was read */
    bool described;             /* from a description (XML), which may leave links out */
    bool nvlink_hidden;         /* the matrix was printed without NVLink (topo -mp) */
    bool matrix;                /* a table of paths was read, even over one GPU */
    bool p2p_asked;  /* the command above a -p2p table says which capability it asks for */
    bool drawn_tree; /* lspci -t: the PCI tree without links */
};

TRI_MUST_CHECK enum tri_status tri_machine_open(struct tri_machine **out, struct tri_error *err);
void tri_machine_close(struct tri_machine *machine); /* NULL is fine */

/* Adds a file name to the sources (or finds it); the index is for tri_source.file. -1: no room. */
int tri_machine_source(struct tri_machine *machine, const char *name);

/* Adds one device with every field unknown. NULL over the limit or without memory. */
struct tri_gpu *tri_machine_add_gpu(struct tri_machine *machine);
struct tri_nic *tri_machine_add_nic(struct tri_machine *machine);
struct tri_pci *tri_machine_add_pci(struct tri_machine *machine);
struct tri_numa *tri_machine_add_numa(struct tri_machine *machine);
struct tri_drive *tri_machine_add_drive(struct tri_machine *machine);

void tri_machine_remark(struct tri_machine *machine, enum tri_remark_kind kind,
                        struct tri_source source, const char *format, ...) TRI_PRINTF(4, 5);
bool tri_machine_is_cut(const struct tri_machine *machine); /* any CUT or REPAIRED remark */

struct tri_pair *tri_machine_pair(const struct tri_machine *machine, size_t a, size_t b);
enum tri_path *tri_machine_gpu_nic(const struct tri_machine *machine, size_t gpu, size_t nic);

/*
 * Index of a device by bus id (any spelling tri_bdf_normal takes), the latest where it was listed
 * twice; -1 when absent. Bus ids are set before the next look-up and never changed after it.
 */
int tri_machine_find_pci(struct tri_machine *machine, const char *bdf);
int tri_machine_find_gpu(const struct tri_machine *machine, const char *bdf);

/*
 * Joins what was read: PCI parents from bus numbers, GPUs, NICs and drives with their PCI device,
 * paths that the PCI tree proves (PIX, PXB, PHB, NODE, SYS) where no tool named one. Idempotent.
 */
void tri_machine_join(struct tri_machine *machine);

/* "3b:00.0", "00000000:3B:00.0", "0000:3b:00", NCCL's "3b000" -> "0000:3b:00.0"; false if none. */
bool tri_bdf_normal(const char *text, size_t bytes, char out[16]);

/* One direction of a PCIe link in GB/s: lanes x GT/s x coding (8/10 to 5 GT/s, then 128/130, then
 * 1). */
double tri_link_gbs(struct tri_link link);
int tri_link_gen(double gts); /* 1..6, 0 unknown */

/* The slowest link from a device up to the root, -1 for `pci` gives 0; *slowest is its index. */
double tri_path_to_root_gbs(const struct tri_machine *machine, int pci, int *slowest);

/* Nominal GB/s one way of one NVLink of the part with `links` links to a peer (0 when unknown). */
double tri_nvlink_gbs(int links, const char *gpu_name);

#endif

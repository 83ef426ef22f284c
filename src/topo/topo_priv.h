/* Shared inside topo. */
#ifndef TRI_TOPO_TOPO_PRIV_H
#define TRI_TOPO_TOPO_PRIV_H

#include "topo/topo.h"

/* Role of a PCI class code; vendor tells a management VGA (ASPEED, Matrox, emulated) from a GPU. */
enum tri_pci_role tri__topo_role(uint32_t class_code, uint16_t vendor);
enum tri_vendor tri__topo_vendor(uint16_t pci_vendor);

/* "16GT/s", "16.0 GT/s PCIe", "8 GT/s" -> 16; 0 when it is not a rate. */
double tri__topo_gts(const char *text);

/* PCI device by bus id, made when absent; NULL over the limit or for a bad id. */
struct tri_pci *tri__topo_pci_at(struct tri_machine *machine, const char *bdf);

/* Sets a path both ways, unless one is known; a different known one becomes a contradiction. */
void tri__topo_set_path(struct tri_machine *machine, size_t a, size_t b, enum tri_path path,
                        int links, struct tri_source source);

/* Copies text cut to fit, control bytes as blanks. */
void tri__topo_copy(char *out, size_t out_bytes, const char *text, size_t text_bytes);

#endif

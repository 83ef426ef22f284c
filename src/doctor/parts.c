/*
 * What the wiring of a part gives, by words of its product name: NVLink or XGMI one way, all links
 * together, and PCIe x16. Source: planner.md 3.1 and hardware.csv of the reference material (vendor
 * data sheets); the first word that is found counts, so special parts stand before their family. A
 * V100 has six links, of which a mesh of four or eight uses about 110 GB/s; the dies of an MI250
 * are a sparse mesh of which a ring uses about 120.
 */
#include <stddef.h>
#include "doctor/doctor_priv.h"

const struct tri__part *tri__doctor_part(const char *name)
{
    static const struct tri__part parts[] = {
        { "GB300", 900, 63, true },         { "GB200", 900, 63, true },
        { "GB10", 0, 25, false },           { "GH200", 450, 63, false },
        { "B300", 900, 121, true },         { "B200", 900, 63, true },
        { "B100", 900, 63, true },          { "H800 PCIe", 0, 63, false },
        { "H800", 200, 63, true },          { "H100 PCIe", 0, 63, false },
        { "H100 NVL", 300, 63, false },     { "H200 NVL", 450, 63, false },
        { "H100", 450, 63, true },          { "H200", 450, 63, true },
        { "H20", 450, 63, true },           { "A800-SXM", 200, 31.5, true },
        { "A800", 200, 31.5, false },       { "A100-SXM", 300, 31.5, true },
        { "A100-PCI", 0, 31.5, false },     { "A100", 300, 31.5, false },
        { "A30", 100, 31.5, false },        { "V100-SXM", 110, 15.75, true },
        { "V100", 0, 15.75, false },        { "P100-SXM", 80, 15.75, true },
        { "MI355", 535.5, 63, false },      { "MI350", 535.5, 63, false },
        { "MI325", 448, 63, false },        { "MI300X", 448, 63, false },
        { "MI308", 448, 63, false },        { "MI250", 120, 31.5, false },
        { "RTX 5090", 0, 63, false },       { "RTX 5080", 0, 63, false },
        { "RTX 5070", 0, 63, false },       { "RTX PRO 6000", 0, 63, false },
        { "RTX 4090", 0, 31.5, false },     { "RTX 4080", 0, 31.5, false },
        { "RTX 3090", 56.25, 31.5, false }, { "RTX 3080", 0, 31.5, false },
        { "RTX 2080", 50, 15.75, false },   { "L40", 0, 31.5, false },
        { "L20", 0, 31.5, false },          { "L4", 0, 31.5, false },
        { "A6000", 56.25, 31.5, false },    { "A5000", 56.25, 31.5, false },
        { "A4000", 0, 31.5, false },        { "6000 Ada", 0, 31.5, false },
        { "5880 Ada", 0, 31.5, false },     { "A40", 56.25, 31.5, false },
        { "A10", 0, 31.5, false },          { "T4", 0, 15.75, false },
        { "910B", 196, 31.5, false },       { "MI50", 0, 15.75, false },
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && name[0]; i++)
        if (tri_text_find(name, parts[i].word))
            return &parts[i];
    return NULL;
}

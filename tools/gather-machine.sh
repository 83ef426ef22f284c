#!/bin/sh
# Collects what `trireme doctor` reads, on a machine that has no Trireme:
#   sh gather-machine.sh out.tar        then anywhere:  trireme doctor out.tar
# Plain sh, tar and sed; root is not needed, more is readable with it (ACS, memory modules are left
# out here). Host and user names, addresses, UUIDs and serial numbers are taken out.
set -u
out=${1:?usage: gather-machine.sh OUT.tar}
case $out in /*) ;; *) out=$PWD/$out ;; esac
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
host=$(uname -n)
user=${USER:-}

clean() {
    sed -E -e "s/\\b$host\\b/HOST/g" \
        -e 's#(/home/|/Users/)[^/ "]+#\1USER#g' \
        -e 's/[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}/00000000-0000-0000-0000-000000000000/g' \
        -e 's/\b[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5,7}\b/00:00:00:00:00:00/g' \
        -e 's/\b[0-9]{1,3}(\.[0-9]{1,3}){3}\b/0.0.0.0/g' \
        -e '/[Ss]erial ?[Nn]umber|GPU UUID|Board ID|Asset|_guid/d' |
        if [ -n "$user" ] && [ "$user" != root ]; then sed -e "s/\\b$user\\b/USER/g"; else cat; fi
}

take() { # a file of /proc or /sys
    [ -r "$1" ] || return 0
    mkdir -p "root$(dirname "$1")"
    clean <"$1" >"root$1" 2>/dev/null || :
}

link() { # of a device's path only the last two bus ids
    target=$(readlink "$1" 2>/dev/null) || return 0
    ids=$(printf '%s\n' "$target" | grep -oE '/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]' | tail -2 | tr -d '\n' | cut -c2-)
    [ -n "$ids" ] || return 0
    mkdir -p "links$(dirname "$1")"
    ln -s "$ids" "links$1"
}

tool() { # NAME COMMAND...
    name=$1
    shift
    command -v "$1" >/dev/null 2>&1 || return 0
    mkdir -p tools
    timeout 20 "$@" 2>/dev/null | clean >"tools/$name"
}

tool nvidia-smi-topo-m.txt nvidia-smi topo -m
tool nvidia-smi-q.txt nvidia-smi -q
tool nvidia-smi-p2p.txt nvidia-smi topo -p2p r
tool nvidia-smi-nvlink.txt nvidia-smi nvlink -s
tool rocm-smi.txt rocm-smi --showtopo
tool amd-smi.txt amd-smi topology
tool lspci.txt lspci -vvv
if command -v dmesg >/dev/null 2>&1; then
    mkdir -p tools
    dmesg 2>/dev/null | grep -E 'available PCIe bandwidth|NVRM: Xid|AER:|PCIe Bus Error|DMAR|AMD-Vi|iommu|Out of memory' |
        clean >tools/dmesg.txt
fi

for f in /proc/cpuinfo /proc/meminfo /proc/loadavg /proc/self/limits /proc/sys/kernel/numa_balancing \
    /proc/sys/kernel/io_uring_disabled /proc/sys/vm/zone_reclaim_mode /proc/sys/vm/overcommit_memory \
    /sys/kernel/mm/transparent_hugepage/enabled /sys/devices/system/cpu/online /sys/fs/cgroup/memory.max \
    /sys/fs/cgroup/cpu.max; do
    take "$f"
done
mkdir -p root/proc
grep -E ' /dev/shm | hugetlbfs ' /proc/mounts >root/proc/mounts 2>/dev/null
grep '^cpu ' /proc/stat >root/proc/stat 2>/dev/null
printf 'BOOT_IMAGE= %s\n' "$(tr ' ' '\n' </proc/cmdline | grep -E '^(iommu|intel_iommu|amd_iommu|pci|huge|default_huge|transparent_huge|isolcpus|nohz|numa|nvidia|mitigations|intel_pstate|amd_pstate)' | tr '\n' ' ')" \
    >root/proc/cmdline
for d in /sys/bus/pci/devices/*; do
    [ -e "$d" ] || continue
    link "$d"
    for f in class vendor device numa_node current_link_speed current_link_width max_link_speed \
        max_link_width secondary_bus_number subordinate_bus_number; do
        take "$d/$f"
    done
done
for d in /sys/devices/system/node/node[0-9]*; do
    for f in cpulist meminfo hugepages/hugepages-2048kB/nr_hugepages hugepages/hugepages-2048kB/free_hugepages \
        hugepages/hugepages-1048576kB/nr_hugepages hugepages/hugepages-1048576kB/free_hugepages; do
        take "$d/$f"
    done
done
for d in /sys/devices/system/cpu/cpu[0-9]*; do
    take "$d/cpufreq/scaling_governor"
    take "$d/cpufreq/scaling_driver"
done
for d in /sys/class/net/* /sys/class/infiniband/*; do
    [ -e "$d/device" ] || continue
    link "$d/device"
    for f in speed type ports/1/rate ports/1/state; do take "$d/$f"; done
done
for d in /sys/block/*; do
    [ -e "$d" ] || continue
    link "$d"
    for f in size queue/rotational device/model; do take "$d/$f"; done
done
tar -cf - --format=ustar --owner=0 --group=0 ./* >"$out" && echo "$out written; read it with: trireme doctor $out"

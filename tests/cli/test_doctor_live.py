"""trireme doctor on this machine, on made trees under --root with one fault each, --gather and
reading it back, --watch. Every made tree is healthy but for the fault its test puts in."""
import json
import os
import re
import resource
import socket
import subprocess
import tarfile
import tempfile
import threading
import time
import unittest

TRIREME = os.environ["TRIREME"]
SOURCE = os.environ["TRIREME_SOURCE"]


def slurp(path, mode="r"):
    with open(path, mode) as f:
        return f.read()


def run(*args):
    p = subprocess.run([TRIREME, "doctor", *args], capture_output=True, timeout=120)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def report(*args):
    code, out, err = run("--json", *args)
    assert code in (0, 1, 2), (code, err)
    return json.loads(out)


def rules(rep):
    return {f["rule"]: f["severity"] for f in rep["findings"]}


class Tree:
    """A two-socket server: 2 x 4 processors, 64 GiB a node, 2 GPUs and an adapter below a switch."""

    def __init__(self, test):
        self.tmp = tempfile.TemporaryDirectory()
        test.addCleanup(self.tmp.cleanup)
        self.root = self.tmp.name
        cpus = "".join(f"processor\t: {i}\nvendor_id\t: AuthenticAMD\nmodel name\t: Example 9004\n"
                       f"physical id\t: {i // 4}\ncpu cores\t: 4\nflags\t\t: fpu avx2\n\n" for i in range(8))
        self.put("/proc/cpuinfo", cpus)
        self.put("/proc/meminfo", "MemTotal: 134217728 kB\nMemFree: 100000000 kB\nMemAvailable: 120000000 kB\n"
                 "SwapTotal: 0 kB\nSwapFree: 0 kB\nHugePages_Total: 0\nHugePages_Free: 0\nHugePages_Rsvd: 0\n"
                 "Hugepagesize: 2048 kB\n")
        self.put("/proc/stat", "cpu  1000 0 500 100000 10 0 5 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")
        self.put("/proc/vmstat", "pgmajfault 10\npswpin 0\npswpout 0\n")
        self.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz ro quiet iommu=pt\n")
        self.put("/proc/mounts", "tmpfs /dev/shm tmpfs rw,nosuid,size=67108864k 0 0\n")
        self.put("/proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n")
        self.put("/proc/sys/kernel/numa_balancing", "0\n")
        self.put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        for n in range(2):
            self.put(f"/sys/devices/system/node/node{n}/cpulist", f"{4 * n}-{4 * n + 3}\n")
            self.put(f"/sys/devices/system/node/node{n}/meminfo",
                     f"Node {n} MemTotal:       67108864 kB\nNode {n} MemFree:        50000000 kB\n")
        for i in range(8):
            self.put(f"/sys/devices/system/cpu/cpu{i}/cpufreq/scaling_governor", "performance\n")
            self.put(f"/sys/devices/system/cpu/cpu{i}/cpufreq/scaling_driver", "acpi-cpufreq\n")
        chain = "/sys/devices/pci0000:40/0000:40:01.0"
        self.pci(chain, "0x060400", "0x1022", (16, 16), buses=(0x41, 0x45))
        self.pci(chain + "/0000:41:00.0", "0x060400", "0x1000", (16, 16), buses=(0x42, 0x45))
        for k, (cls, vendor) in enumerate([("0x030200", "0x10de"), ("0x030200", "0x10de"), ("0x020700", "0x15b3")]):
            port = chain + f"/0000:41:00.0/0000:42:{k:02x}.0"
            self.pci(port, "0x060400", "0x1000", (16, 16), buses=(0x43 + k, 0x43 + k))
            self.pci(port + f"/0000:{0x43 + k:02x}:00.0", cls, vendor, (16, 16))

    def put(self, path, text):
        full = self.root + path
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full + ".new", "w") as f:
            f.write(text)
        os.replace(full + ".new", full)  # somebody may be reading

    def pci(self, path, cls, vendor, cap, sta=None, buses=None):
        speed, width = sta or cap
        for name, text in (("class", cls), ("vendor", vendor), ("device", "0x1234"), ("numa_node", "0"),
                           ("max_link_speed", f"{cap[0]}.0 GT/s PCIe"), ("max_link_width", str(cap[1])),
                           ("current_link_speed", f"{speed}.0 GT/s PCIe"), ("current_link_width", str(width))):
            self.put(path + "/" + name, text + "\n")
        if buses:
            self.put(path + "/secondary_bus_number", f"{buses[0]}\n")
            self.put(path + "/subordinate_bus_number", f"{buses[1]}\n")
        link = self.root + "/sys/bus/pci/devices/" + path.split("/")[-1]
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if not os.path.islink(link):
            os.symlink("../../.." + path[4:], link)

    def device(self, bdf):
        return os.path.realpath(self.root + "/sys/bus/pci/devices/" + bdf)[len(os.path.realpath(self.root)):]

    def report(self):
        return report("--root", self.root)


class MadeRoots(unittest.TestCase):
    def setUp(self):
        self.t = Tree(self)

    def fault(self, rule, severity, words):
        rep = self.t.report()
        hit = [f for f in rep["findings"] if f["rule"] == rule and f["severity"] == severity]
        self.assertTrue(hit, rep["findings"])
        self.assertIn(words, " ".join(f["title"] for f in hit))
        others = [f for f in rep["findings"] if f["severity"] in ("WARN", "FAIL") and f["rule"] != rule]
        self.assertEqual(others, [])
        self.assertTrue(hit[0]["cure"])
        return hit[0]

    def test_healthy(self):
        rep = self.t.report()
        self.assertEqual([f for f in rep["findings"] if f["severity"] != "OK"], [])
        m = rep["machines"][0]
        self.assertEqual(m["cpu"]["threads"], 8)
        self.assertEqual(m["cpu"]["sockets"], 2)
        self.assertEqual([n["memory_bytes"] for n in m["numa"]], [64 << 30] * 2)
        self.assertEqual([g["bus_id"] for g in m["gpus"]], ["0000:43:00.0", "0000:44:00.0"])
        self.assertEqual(m["gpus"][0]["paths"][0]["path"], "PIX")

    def test_numa_memory(self):
        self.t.put("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 33554432 kB\n")
        self.fault("host_numa_memory", "WARN", "32 to 64 GiB")

    def test_numa_balancing(self):
        self.t.put("/proc/sys/kernel/numa_balancing", "1\n")
        f = self.fault("host_numa_balancing", "WARN", "balancing is on")
        self.assertEqual(f["cure"], ["sudo sysctl kernel.numa_balancing=0"])
        self.assertEqual(f["evidence"][0]["file"], "/proc/sys/kernel/numa_balancing")

    def test_cgroup_v2(self):
        self.t.put("/proc/self/cgroup", "0::/pod/one\n")
        self.t.put("/sys/fs/cgroup/pod/one/memory.max", "max\n")
        self.t.put("/sys/fs/cgroup/pod/memory.max", str(16 << 30) + "\n")
        self.fault("host_cgroup", "WARN", "16.0 GiB of memory (the machine has 128.0)")

    def test_cgroup_v1(self):
        self.t.put("/proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n")
        self.t.put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", str(32 << 30) + "\n")
        self.fault("host_cgroup", "WARN", "32.0 GiB")

    def test_cgroup_cpu(self):
        self.t.put("/proc/self/cgroup", "0::/\n")
        self.t.put("/sys/fs/cgroup/cpu.max", "250000 100000\n")
        self.fault("host_cgroup", "WARN", "2.5 of 8 processors")

    def test_huge_pages_set_aside(self):
        self.t.put("/proc/meminfo", "MemTotal: 134217728 kB\nMemAvailable: 60000000 kB\nSwapTotal: 0 kB\n"
                   "SwapFree: 0 kB\nHugePages_Total: 32768\nHugePages_Free: 32768\nHugePages_Rsvd: 0\n"
                   "Hugepagesize: 2048 kB\n")
        self.fault("host_hugepages", "WARN", "64.0 GiB")

    def test_huge_pages_off(self):
        self.t.put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
        self.fault("host_hugepages", "INFO", "are off")

    def test_governor(self):
        for i in range(8):
            self.t.put(f"/sys/devices/system/cpu/cpu{i}/cpufreq/scaling_governor", "powersave\n")
        self.fault("host_governor", "WARN", '8 of 8 processors use the governor "powersave"')
        self.t.put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n")
        self.fault("host_governor", "INFO", "powersave")

    def test_steal(self):
        self.t.put("/proc/stat", "cpu  1000 0 500 100000 10 0 5 400 0 0\n")
        self.fault("host_steal", "WARN", "21.0 %")

    def test_swap(self):
        self.t.put("/proc/meminfo", "MemTotal: 134217728 kB\nMemAvailable: 60000000 kB\n"
                   "SwapTotal: 67108864 kB\nSwapFree: 33554432 kB\n")
        self.fault("host_swap", "WARN", "32.0 GiB are swapped out")

    def test_shm(self):
        self.t.put("/proc/mounts", "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0\n")
        self.fault("host_shm", "WARN", "64 MiB")

    def test_memlock(self):
        self.t.put("/proc/self/limits", "Max locked memory         65536                65536                bytes\n")
        path = self.t.device("0000:45:00.0")
        os.makedirs(self.t.root + "/sys/class/infiniband/mlx5_0/ports/1")
        os.symlink("../../.." + path[4:], self.t.root + "/sys/class/infiniband/mlx5_0/device")
        self.t.put("/sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n")
        self.fault("host_memlock", "WARN", "64 KiB")

    def test_iommu(self):
        self.t.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz amd_iommu=on\n")
        self.fault("iommu", "WARN", "translates")

    def test_iommu_group(self):
        for i, bdf in enumerate(("0000:43:00.0", "0000:44:00.0")):
            self.t.put(f"/sys/kernel/iommu_groups/{i}/type", "DMA-FQ\n")
            os.symlink(f"../../../kernel/iommu_groups/{i}", self.t.root + self.t.device(bdf) + "/iommu_group")
        self.fault("iommu", "WARN", "of the GPUs")

    def test_narrow_gpu(self):
        self.t.put(self.t.device("0000:44:00.0") + "/current_link_width", "8\n")
        f = self.fault("pcie_width", "FAIL", "0000:44:00.0 runs at x8 of x16")
        self.assertAlmostEqual(f["cost"]["have_gbs"], 15.75, 1)

    def test_narrow_uplink(self):
        self.t.put(self.t.device("0000:41:00.0") + "/current_link_width", "4\n")
        self.fault("pcie_width", "FAIL", "the bridge above a GPU, 0000:41:00.0 runs at x4 of x16")

    def test_acs(self):
        """Configuration space with an Express and an ACS capability whose control word is 0x1d."""
        config = bytearray(4096)
        config[0x34] = 0x40
        config[0x40] = 0x10                      # Express
        config[0x42] = 0x62                      # downstream port
        config[0x100:0x104] = (0x0d | 1 << 16).to_bytes(4, "little")
        config[0x106:0x108] = (0x1d).to_bytes(2, "little")
        for k in range(2):
            with open(self.t.root + self.t.device(f"0000:42:{k:02x}.0") + "/config", "wb") as f:
                f.write(config)
        f = self.fault("acs_redirect", "WARN", "(2 ports)")
        self.assertIn("sudo setpci -s 0000:42:00.0 ECAP_ACS+0x6.w=0000", f["cure"])

    def test_links_stay_inside(self):
        """An absolute link of a copied root does not lead to the real machine."""
        os.remove(self.t.root + "/proc/cpuinfo")
        os.symlink("/etc/hostname", self.t.root + "/proc/cpuinfo")
        rep = self.t.report()
        self.assertNotIn("host_cpu", rules(rep))
        self.assertNotIn(socket.gethostname() + '"', json.dumps(rep))

    def test_no_such_root(self):
        code, _, err = run("--root", "/no/such/dir")
        self.assertEqual(code, 3)
        self.assertIn("/no/such/dir", err)


class Gather(unittest.TestCase):
    def test_made_root(self):
        t = Tree(self)
        t.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=01234567-89ab-cdef-0123-456789abcdef ip=10.1.2.3 amd_iommu=on\n")
        t.put(t.device("0000:44:00.0") + "/current_link_width", "8\n")
        before = t.report()
        with tempfile.TemporaryDirectory() as d:
            out = d + "/box.tar"
            code, text, _ = run("--root", t.root, "--gather", out)
            self.assertEqual(code, 0)
            after = report(out)
            with tarfile.open(out) as tar:  # a real tar, readable by others
                names = tar.getnames()
                self.assertIn("root/proc/cpuinfo", names)
                cmdline = tar.extractfile("root/proc/cmdline").read().decode()
                tar.extractall(d + "/x", filter="data") if hasattr(tarfile, "data_filter") else None
            self.assertIn("amd_iommu=on", cmdline)
            self.assertNotIn("10.1.2.3", cmdline)
            self.assertNotIn("UUID", cmdline)
            data = slurp(out, "rb")
            cut = d + "/cut.tar"
            with open(cut, "wb") as f:
                f.write(data[:len(data) // 2])
            self.assertFalse(report(cut)["complete"])
        for rep in (before, after):
            self.assertEqual(rules(rep)["pcie_width"], "FAIL")
            self.assertEqual(rules(rep)["iommu"], "WARN")
        self.assertEqual(before["machines"][0]["gpus"], after["machines"][0]["gpus"])
        self.assertEqual(before["machines"][0]["numa"], after["machines"][0]["numa"])

    def test_this_machine(self):
        with tempfile.TemporaryDirectory() as d:
            for how in ("program", "script"):
                out = f"{d}/{how}.tar"
                if how == "program":
                    self.assertEqual(run("--gather", out)[0], 0)
                else:
                    subprocess.run(["sh", SOURCE + "/tools/gather-machine.sh", out], check=True,
                                   capture_output=True, timeout=60)
                rep = report(out)
                self.assertEqual(rep["machines"][-1]["cpu"]["threads"], os.cpu_count(), how)
                data = slurp(out, "rb").decode("latin1")
                mac = slurp("/sys/class/net/eth0/address").strip() if \
                    os.path.exists("/sys/class/net/eth0/address") else "no:mac"
                self.assertNotIn(mac, data)
                host = socket.gethostname()
                if len(host) > 5:
                    self.assertNotIn(host, data)


class Watch(unittest.TestCase):
    def test_changes(self):
        t = Tree(self)
        t.put(t.device("0000:43:00.0") + "/current_link_speed", "2.5 GT/s PCIe\n")

        def change():
            time.sleep(0.5)
            t.put(t.device("0000:43:00.0") + "/current_link_speed", "16.0 GT/s PCIe\n")
            t.put(t.device("0000:44:00.0") + "/current_link_width", "8\n")
            t.put("/proc/vmstat", "pgmajfault 10\npswpin 0\npswpout 5000\n")
        thread = threading.Thread(target=change)
        thread.start()
        code, out, _ = run("--root", t.root, "--watch=0.4", "--count", "4")
        thread.join()
        self.assertEqual(code, 2)
        self.assertRegex(out, r"OK    GPU 0000:43:00\.0: 2\.5 GT/s x16 became 16 GT/s x16: it woke up")
        self.assertRegex(out, r"FAIL  GPU 0000:44:00\.0: 16 GT/s x16 became 16 GT/s x8: lanes were lost")
        self.assertIn("pages swapped out", out)

    def test_unknown_links(self):
        """A device that sleeps tells nothing: no link is lost, and what it says later is compared with what it said."""
        t = Tree(self)
        folder = t.device("0000:43:00.0")
        t.put(folder + "/current_link_speed", "2.5 GT/s PCIe\n")
        p = subprocess.Popen([TRIREME, "doctor", "--root", t.root, "--watch=0.1", "--count", "600"],
                             stdout=subprocess.PIPE, text=True)
        self.assertIn("watching", p.stdout.readline())
        for speed, width in (("Unknown", "63"), ("", ""), ("16.0 GT/s PCIe", "16")):
            t.put(folder + "/current_link_speed", speed + "\n")
            t.put(folder + "/current_link_width", width + "\n")
            time.sleep(0.5)
        self.assertRegex(p.stdout.readline(), r"^[0-9]+ s$")
        self.assertRegex(p.stdout.readline(), r"2\.5 GT/s x16 became 16 GT/s x16: it woke up")
        p.terminate()
        p.communicate()

    def test_quiet(self):
        t = Tree(self)
        code, out, _ = run("--root", t.root, "--watch=0.1", "--count", "2")
        self.assertEqual((code, out), (0, "watching every 0.1 s\n"))
        self.assertEqual(run("--watch", "5")[0], 3)


class Live(unittest.TestCase):
    def test_this_machine(self):
        rep = report()
        m = rep["machines"][0]
        self.assertEqual(m["cpu"]["threads"], os.cpu_count())
        total = int(re.search(r"MemTotal:\s+(\d+)", slurp("/proc/meminfo"))[1]) << 10
        self.assertEqual(m["memory_bytes"], total)
        self.assertIn("host_cpu", rules(rep))
        self.assertIn("host_uring", rules(rep))

    def test_measured(self):
        rep = report("--measure")
        memory = [f for f in rep["findings"] if f["rule"] == "host_memory" and "reads at" in f["title"]]
        self.assertTrue(memory, rep["notes"])
        gbs = float(re.search(r"at ([\d.]+) GB/s", memory[0]["title"])[1])
        self.assertTrue(0.2 < gbs < 2000, gbs)

    def test_measured_drive_leaves_nothing(self):
        """The test file has no name once it grows; a drive that takes only a part of it is told with the reason."""
        with tempfile.TemporaryDirectory() as d:
            p = subprocess.Popen([TRIREME, "doctor", "--measure", "--measure-dir", d], stdout=subprocess.DEVNULL)
            while p.poll() is None:
                for name in os.listdir(d):
                    try:
                        self.assertEqual(os.stat(os.path.join(d, name)).st_size, 0)
                    except FileNotFoundError:
                        pass
            self.assertEqual(os.listdir(d), [])
            for size in (0, 1 << 20, (5 << 20) + 4096):
                p = subprocess.run([TRIREME, "doctor", "--measure", "--measure-dir", d], capture_output=True, text=True,
                                   preexec_fn=lambda n=size: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)))
                self.assertRegex(p.stdout, "the drive was not measured: test file of 256 MiB: File too large")

    def test_html(self):
        t = Tree(self)
        t.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz amd_iommu=on\n")
        with tempfile.TemporaryDirectory() as d:
            run("--root", t.root, "--html", d + "/r.html")
            text = slurp(d + "/r.html")
        self.assertEqual(text.count("<circle"), 2)
        self.assertEqual(text.count("<line"), 1)
        self.assertIn('<article class="WARN">', text)
        self.assertNotIn("<script", text)
        for tag in ("article", "svg", "pre", "table", "details"):
            self.assertEqual(text.count(f"<{tag}"), text.count(f"</{tag}>"), tag)


if __name__ == "__main__":
    unittest.main(verbosity=1)

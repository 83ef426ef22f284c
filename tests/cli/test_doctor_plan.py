"""From captured files over `trireme doctor --json` to `trireme plan --machine`: which GPUs there are,
who is near whom and over what, arrives in the plan as the files' own text says it."""
import json
import os
import re
import subprocess
import tempfile
import unittest

TRIREME = os.environ["TRIREME"]

# Two sockets with a PCIe switch each: 0,1 below one, 2,3 below the other; an adapter at each switch.
SWITCHES = """\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPIX\tSYS\tSYS\tPIX\tSYS\t0-15\t0\t\tN/A
GPU1\tPIX\t X \tSYS\tSYS\tPIX\tSYS\t0-15\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tPIX\tSYS\tPIX\t16-31\t1\t\tN/A
GPU3\tSYS\tSYS\tPIX\t X \tSYS\tPIX\t16-31\t1\t\tN/A
NIC0\tPIX\tPIX\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X 

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_3
"""
# Bridges join 0 with 2 and 1 with 3: not the neighbours by number.
BRIDGES = """\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tSYS\tNV12\tSYS\t0-15\t0
GPU1\tSYS\t X \tSYS\tNV12\t16-31\t1
GPU2\tNV12\tSYS\t X \tSYS\t0-15\t0
GPU3\tSYS\tNV12\tSYS\t X \t16-31\t1
"""
XGMI = """======================= ROCm System Management Interface =======================
========================== Link Type between two GPUs ==========================
       GPU0         GPU1         GPU2         GPU3         
GPU0   0            XGMI         XGMI         XGMI         
GPU1   XGMI         0            XGMI         XGMI         
GPU2   XGMI         XGMI         0            XGMI         
GPU3   XGMI         XGMI         XGMI         0            
============================= End of ROCm SMI Log ==============================
"""
PRODUCTS = "".join(f"GPU[{i}]\t\t: Card Series: \t\tAMD Instinct MI300X\n" for i in range(4))


def listed(name, mib):
    return "index, name, memory.total [MiB]\n" + "".join(f"{i}, {name}, {mib} MiB\n" for i in range(4))


def granted(word):
    rows = ["\tGPU0\tGPU1\tGPU2\tGPU3"]
    rows += ["\t".join([f"GPU{a}"] + ["X" if a == b else word for b in range(4)]) for a in range(4)]
    return "nvidia-smi topo -p2p r\n" + "\n".join(rows) + "\n"


class Through(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.folder = tmp.name

    def diagnose(self, *texts):
        """The files given to the doctor; its report, and where it was written."""
        files = []
        for i, text in enumerate(texts):
            files.append(os.path.join(self.folder, f"reading{i}.txt"))
            with open(files[-1], "w") as f:
                f.write(text)
        p = subprocess.run([TRIREME, "doctor", "--json", *files], capture_output=True, text=True, timeout=60)
        self.assertIn(p.returncode, (0, 1, 2), p.stderr)
        out = os.path.join(self.folder, "report.json")
        with open(out, "w") as f:
            f.write(p.stdout)
        return json.loads(p.stdout), out

    def plan(self, report, layout, model="llama-3.1-8b"):
        """(JSON of the plan, its text)"""
        args = [TRIREME, "plan", "-m", model, "--machine", report, "--layout", layout]
        both = [subprocess.run(args + more, capture_output=True, text=True, timeout=60)
                for more in (["--json"], [])]
        for p in both:
            self.assertEqual(p.returncode, 0, p.stderr)
        return json.loads(both[0].stdout), both[1].stdout

    def groups(self, report, k):
        return [g for g in report["groups"] if g["k"] == k][0]

    def test_switches(self):
        report, path = self.diagnose(SWITCHES, listed("NVIDIA L40S", 46068))
        pairs = self.groups(report, 2)
        self.assertEqual(sorted(map(tuple, pairs["groups"])), [(0, 1), (2, 3)])
        self.assertEqual(pairs["nics"], [["mlx5_0"], ["mlx5_3"]])
        self.assertIn("NCCL_IB_HCA==mlx5_0 ", pairs["settings"] + " ")
        self.assertNotIn("NCCL_IB_HCA", self.groups(report, 4)["settings"])
        two, text = self.plan(path, "tp2")
        self.assertEqual(two["asked"]["device"], "L40S")
        self.assertEqual(two["asked"]["cards_per_node"], 4)
        self.assertAlmostEqual(two["asked"]["card_gib"], 46068 / 1024, places=2)
        self.assertRegex(text, r"cards 0,1\n\s+TP over PIX:")
        four, text = self.plan(path, "tp4")
        self.assertRegex(text, r"cards 0,1,2,3\n\s+TP over SYS:")
        self.assertGreater(four["step_ms"]["links"], two["step_ms"]["links"])

    def test_bridges(self):
        report, path = self.diagnose(BRIDGES + "\n" + listed("NVIDIA A100 80GB PCIe", 81920))
        self.assertEqual(sorted(map(tuple, self.groups(report, 2)["groups"])), [(0, 2), (1, 3)])
        self.assertIn("gpu_order", [f["rule"] for f in report["findings"]])
        plan, text = self.plan(path, "tp2")
        self.assertTrue(plan["asked"]["device"].startswith("A100"), plan["asked"])
        self.assertRegex(text, r"cards (0,2|1,3)\n\s+TP over NV")

    def test_peer_access_refused(self):
        """Refused peer access goes through host memory: the same wires, slower messages."""
        links = []
        for word in ("OK", "GNS"):
            report, path = self.diagnose(SWITCHES, granted(word), listed("NVIDIA L40S", 46068))
            self.assertEqual("p2p_denied" in [f["rule"] for f in report["findings"]], word == "GNS")
            answers = {p["p2p"] for g in report["machines"][0]["gpus"] for p in g["paths"]}
            self.assertEqual(answers, {word})
            links.append(self.plan(path, "tp2")[0]["step_ms"]["links"])
        self.assertGreater(links[1], links[0])

    def test_amd(self):
        report, path = self.diagnose(XGMI + PRODUCTS)
        self.assertEqual(len(report["machines"][0]["gpus"]), 4)
        self.assertIn("HIP_VISIBLE_DEVICES", self.groups(report, 2)["settings"])
        plan, text = self.plan(path, "tp4")
        self.assertEqual(plan["asked"]["device"], "MI300X")
        self.assertIn("TP over XGMI", text)

    def test_nobody_is_named(self):
        """A table of paths alone does not say which part: the plan asks instead of guessing."""
        _, path = self.diagnose(SWITCHES)
        args = [TRIREME, "plan", "-m", "llama-3.1-8b", "--machine", path]
        p = subprocess.run(args, capture_output=True, text=True, timeout=60)
        self.assertEqual(p.returncode, 2)
        self.assertIn("--hw", p.stderr)
        p = subprocess.run([*args, "--hw", "L40S", "--layout", "tp2"], capture_output=True, text=True, timeout=60)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertTrue(re.search(r"TP over PIX", p.stdout))


if __name__ == "__main__":
    unittest.main(verbosity=1)

"""Train the nano model on two CPU cores; stop at any time and start again with the same command.

    python3 train.py OUT [--until HH:MM | --minutes M] [--decay MINUTES] [--seed 1]

OUT (outside the repository) gets tokenizer files, checkpoint.pt, log.csv.  The learning rate is constant and falls
to nothing over the last --decay minutes; weights averaged over the last few hundred steps are kept beside.
"""

import argparse
import csv
import multiprocessing
import os
import signal
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import data
import model as M
from optim import Optimizer
from tokenizer import Tokenizer, special_names
from tokenizer import train as train_bpe


def tokenizer(out):
    if not os.path.exists(os.path.join(out, "tiktoken.model")):
        size = data.VOCAB - data.RESERVED
        ranks = train_bpe(data.corpus(7, 20000), size)
        Tokenizer(ranks, special_names(len(ranks), data.VOCAB - len(ranks))).save(out)
    return Tokenizer.load(out)


# (from step, longest recall distance, share of long samples)
CURRICULUM = [
    (0, 60, 0),
    (300, 160, 0),
    (650, 400, 0.03),
    (850, 1000, 0.04),
    (975, 3000, 0.04),
    (1225, 3000, 0.01),
]


def plan_at(step):
    return [(reach, share) for s, reach, share in CURRICULUM if step >= s][-1]


def producer(queue, seed, out, tokens, step):
    """Makes batches in a process of its own; the step counter steers the curriculum."""
    torch.set_num_threads(1)
    tok = Tokenizer.load(out)
    for group in data.batches(seed, tok, tokens, lambda: plan_at(step.value)):
        T = -(-max(len(i) for i, _ in group) // 16) * 16
        ids = torch.full((len(group), T), tok.special["[PAD]"])
        w = torch.zeros(len(group), T)
        for b, (i, x) in enumerate(group):
            ids[b, : len(i)] = torch.tensor(i)
            w[b, : len(i)] = torch.tensor(x)
        # a quarter of the prompt tokens stands for all: the vocabulary's products are not cheap
        w = torch.where(w < data.ASSISTANT, 4 * w * (torch.rand(w.shape) < 0.25), w)
        queue.put((ids.numpy(), w.numpy()))


def loss_of(net, ids, w):
    """(weighted loss, mean loss of the reply tokens)."""
    target, w = ids[:, 1:].reshape(-1), w[:, 1:].reshape(-1)
    at = w.nonzero().squeeze(1)
    with torch.autocast("cpu", torch.bfloat16):
        h = net(ids)
        h = h[:, :-1].reshape(-1, h.shape[-1]).index_select(0, at)
        logits = net.lm_head(h)
    ce = F.cross_entropy(logits.float(), target[at], reduction="none")
    w = w[at]
    reply = w == data.ASSISTANT
    return (ce * w).sum() / w.sum(), ce.detach()[reply].mean()


class Flat:
    """All gradients as one buffer, so that the workers sum them in one call."""

    def __init__(self, net):
        self.params = list(net.parameters())
        self.moes = net.moes()

    def share(self, numbers):
        """Sums gradients, loss numbers and expert loads over the workers; returns the numbers' means."""
        loads = [m.load.float() for m in self.moes]
        parts = [p.grad.reshape(-1) for p in self.params] + [torch.tensor(numbers)] + loads
        buffer = torch.cat(parts)
        dist.all_reduce(buffer)
        n, at = dist.get_world_size(), 0
        for p in self.params:
            p.grad.copy_(buffer[at : at + p.numel()].view_as(p.grad)).div_(n)
            at += p.numel()
        numbers = (buffer[at : at + len(numbers)] / n).tolist()
        for m, load in zip(self.moes, buffer[at + len(numbers) :].view(len(self.moes), -1)):
            m.load = load
        return numbers


def work(rank, a, counter):
    """One of the workers: its own batches on its own core, the same update in all of them.

    A core each, and one meeting per step: far faster than two threads per operation when the machine is busy.
    """
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    M.FAST = not a.plain
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.path.abspath(a.out)}/meeting",
        rank=rank,
        world_size=a.workers,
    )
    tok = Tokenizer.load(a.out)
    net = M.K3(M.config(vocab_size=tok.size))
    opt = Optimizer(net)
    average = {n: p.detach().clone() for n, p in net.named_parameters()}
    step, seen, minutes, path = 0, 0, 0.0, os.path.join(a.out, "checkpoint.pt")
    if os.path.exists(path):
        s = torch.load(path, weights_only=True)
        net.load_state_dict(s["model"])
        opt.load_state_dict(s["opt"])
        average, step, seen, minutes = s["average"], s["step"], s["tokens"], s.get("minutes", 0.0)
    counter.value = step
    if rank == 0:
        print(M.counts(net), "parameters, active", tok.size, "tokens, from step", step, flush=True)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue(8)
    process = context.Process(
        target=producer,
        args=(queue, a.seed + 1000 * step + rank, a.out, a.tokens, counter),
        daemon=True,
    )
    process.start()
    log = open(os.path.join(a.out, "log.csv"), "a", newline="") if rank == 0 else None
    table = csv.writer(log) if log else None
    if log and log.tell() == 0:
        table.writerow("minute step tokens loss reply_loss grad_norm load_max lr".split())
    flat, total, start, saved = Flat(net), [], time.time(), time.time()
    signal.signal(signal.SIGTERM, lambda *_: total.append(None))
    stop = False

    def save():
        state = dict(
            model=net.state_dict(), average=average, opt=opt.state_dict(), step=step, tokens=seen
        )
        torch.save(state | dict(minutes=minutes + (time.time() - start) / 60), path + ".new")
        os.replace(path + ".new", path)

    while not stop:
        ids, w = (torch.from_numpy(x) for x in queue.get())
        loss, reply = loss_of(net, ids, w)
        loss.backward()
        for p in flat.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        left = a.end - time.time()
        wish = float(None in total or left <= 0)
        total = [t for t in total if t]
        loss, reply, tokens, left, wish = flat.share(
            [float(loss.detach()), float(reply), float((w > 0).sum()), left, wish]
        )
        stop = wish > 0
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        step, seen = step + 1, seen + int(tokens * a.workers)
        counter.value = step
        lr = min(1, step / 100) * (min(1, max(0.0, left) / (60 * a.decay)) if a.decay else 1)
        if torch.isfinite(norm):
            opt.step(a.lr * lr, 0.15 * a.lr * lr)
        else:
            print("step", step, "skipped: not finite", flush=True)
            net.zero_grad()
        with torch.no_grad():
            for m in net.moes():  # balance the experts through the selection bias alone
                m.gate.e_score_correction_bias += 0.002 * lr * torch.sign(m.load.mean() - m.load)
            for n, p in net.named_parameters():
                average[n].lerp_(p, max(0.005, 1 / (step + 1)))
        total.append(
            (loss, reply, float(norm), max(float(m.load.max() / m.load.mean()) for m in net.moes()))
        )
        if rank == 0 and step % 25 == 0:
            row = [round(sum(c) / len(c), 4) for c in zip(*total)]
            table.writerow(
                [round(minutes + (time.time() - start) / 60, 2), step, seen, *row, round(lr, 3)]
            )
            log.flush()
            total = []
        if rank == 0 and time.time() - saved > 120:
            save()
            saved = time.time()
    if rank == 0:
        save()
    process.terminate()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("out")
    a.add_argument("--until")
    a.add_argument("--minutes", type=float)
    a.add_argument("--decay", type=float, default=0)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--workers", type=int, default=2)
    a.add_argument("--tokens", type=int, default=2560, help="per worker and step")
    a.add_argument("--lr", type=float, default=0.02)
    a.add_argument("--plain", action="store_true", help="do not compile")
    a = a.parse_args()
    os.makedirs(a.out, exist_ok=True)
    tokenizer(a.out)
    a.end = time.time() + 60 * (a.minutes or 1e9)
    if a.until:
        t = time.localtime()
        h, m = map(int, a.until.split(":"))
        a.end = time.mktime((t.tm_year, t.tm_mon, t.tm_mday, h, m, 0, 0, 0, -1))
    meeting = os.path.join(a.out, "meeting")
    if os.path.exists(meeting):
        os.remove(meeting)
    context = multiprocessing.get_context("spawn")
    counter = context.Value("i", 0)
    workers = [context.Process(target=work, args=(r, a, counter)) for r in range(a.workers)]
    for w in workers:
        w.start()
    signal.signal(signal.SIGTERM, lambda *_: [w.terminate() for w in workers])
    for w in workers:
        w.join()


if __name__ == "__main__":
    main()

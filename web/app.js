/* The page of `trireme serve`: a chat over /v1/chat/completions and numbers from /metrics. */
"use strict";
const $ = (id) => document.getElementById(id);
const messages = [];          // what is sent, without the system prompt
let running = null;           // AbortController of the answer being made

/* --- the conversation ---------------------------------------------------------------------- */

function node(tag, cls, text) {
  const n = document.createElement(tag);
  if (cls) n.className = cls;
  if (text !== undefined) n.textContent = text;
  return n;
}

function headers() {
  const h = { "Content-Type": "application/json" };
  if ($("key").value) h.Authorization = "Bearer " + $("key").value;
  return h;
}

function addTurn(role) {
  $("hint").hidden = true;
  const turn = node("article", "turn " + role);
  turn.append(node("div", "who", role === "user" ? "You" : role === "tool" ? "Tool result" : "Trireme"));
  $("log").append(turn);
  return turn;
}

function showText(role, text) {
  addTurn(role).append(node("div", "text", text));
  scroll(true);
}

function scroll(force) {
  const log = $("log");
  if (force || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
}

/* An answer on the page; its parts come into being when they are needed. */
class Answer {
  constructor() {
    this.turn = addTurn("assistant");
    this.message = { role: "assistant", content: "" };
    this.reasoning = "";
  }
  part(name, make) {
    if (!this[name]) { this[name] = make(); }
    return this[name];
  }
  think(text) {
    this.reasoning += text;
    this.part("thinkText", () => {
      const box = node("details", "think"), body = node("div", "text");
      box.open = false;
      this.thinkHead = node("summary", "", "Thinking…");
      box.append(this.thinkHead, body);
      this.turn.append(box);
      return body;
    }).append(text);
  }
  say(text) {
    this.message.content += text;
    if (this.thinkHead) this.thinkHead.textContent = "Thinking";
    this.part("body", () => { const n = node("div", "text"); this.turn.append(n); return n; }).append(text);
  }
  call(piece) {
    const calls = this.message.tool_calls = this.message.tool_calls || [];
    let call = calls[piece.index];
    if (!call) {
      call = calls[piece.index] = { id: piece.id, type: "function", function: { name: piece.function.name, arguments: "" } };
      call.box = node("div", "call");
      call.shown = node("span", "", "");
      call.box.append(node("strong", "", piece.function.name), " ", call.shown);
      this.turn.append(call.box);
    }
    call.function.arguments += piece.function.arguments || "";
    call.shown.textContent = call.function.arguments;
  }
  /* How it ended: "done", "stopped" (what there is counts, but for calls that may be half) or "bad"
     (nothing was said: it does not become part of the conversation). */
  finish(note, how) {
    const bad = how === "bad";
    if (how !== "done") { (this.message.tool_calls || []).forEach((c) => c.box.remove()); delete this.message.tool_calls; }
    if (this.thinkHead) this.thinkHead.textContent = "Thinking";
    if (this.reasoning) this.message.reasoning_content = this.reasoning;
    const calls = this.message.tool_calls || [];
    const bar = node("div", "tools" + (bad ? " bad" : ""));
    const again = node("button", "", "Regenerate");
    again.type = "button";
    again.onclick = () => regenerate(this);
    bar.append(again, node("span", "dim", note));
    this.turn.append(bar);
    calls.forEach((call) => askResult(call));
    this.message.tool_calls = calls.length ? calls.map(({ id, type, function: f }) => ({ id, type, function: f })) : undefined;
    this.at = messages.length;
    if (!bad && this.turn.isConnected) messages.push(this.message);  // not if all was cleared meanwhile
    scroll(false);
  }
}

/* A field for what the tool answered. */
function askResult(call) {
  const form = node("form"), field = node("input"), send = node("button", "", "Give result");
  field.setAttribute("aria-label", "Result of " + call.function.name);
  field.placeholder = "What the tool answers";
  form.append(field, send);
  form.onsubmit = (e) => {
    e.preventDefault();
    if (running) return;
    form.remove();
    messages.push({ role: "tool", tool_call_id: call.id, content: field.value });
    showText("tool", field.value);
    if (!document.querySelector(".call form")) answer();
  };
  call.box.append(form);
}

function regenerate(old) {
  if (running) return;
  messages.length = old.at;
  while (old.turn.nextSibling) old.turn.nextSibling.remove();
  old.turn.remove();
  answer();
}

function request() {
  const number = (id) => ($(id).value === "" ? undefined : Number($(id).value));
  const body = { model: $("model").textContent, stream: true, stream_options: { include_usage: true },
    temperature: number("temperature"), top_p: number("top_p"), max_tokens: number("max_tokens"),
    seed: number("seed"), reasoning_effort: $("effort").value };
  if (number("top_k") > 0) body.top_k = number("top_k");
  body.messages = ($("system").value ? [{ role: "system", content: $("system").value }] : []).concat(messages);
  if ($("tools").value.trim()) body.tools = JSON.parse($("tools").value);
  return body;
}

/* Calls take(data) for each event of a stream. */
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks)
      if (block.startsWith("data: ") && block !== "data: [DONE]") take(JSON.parse(block.slice(6)));
  }
}

function rate(x) { return x < 100 ? x.toFixed(1) : Math.round(x).toLocaleString(); }

function busy(on) {
  const held = document.activeElement === $("send") || document.activeElement === $("stop");
  $("send").hidden = on;
  $("stop").hidden = !on;
  if (held) (on ? $("stop") : $("say")).focus();  // a control that goes takes its focus with it
  $("log").setAttribute("aria-busy", on);
}

async function answer() {
  const begin = performance.now();
  let body, first = 0, usage = null, reason = "";
  try { body = request(); } catch (e) { $("status").textContent = "Tools: " + e.message; return; }
  const out = new Answer();
  running = new AbortController();
  busy(true);
  $("status").textContent = "Reading the prompt…";
  try {
    const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal });
    if (!response.ok) throw new Error((await response.json()).error.message);
    await readEvents(response, (event) => {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const choice = event.choices[0];
      if (!choice) return;
      const delta = choice.delta;
      if (!first && (delta.content || delta.reasoning || delta.tool_calls)) { first = performance.now(); $("status").textContent = "Answering…"; }
      if (delta.reasoning) out.think(delta.reasoning);
      if (delta.content) out.say(delta.content);
      (delta.tool_calls || []).forEach((p) => out.call(p));
      if (choice.finish_reason) reason = choice.finish_reason;
      scroll(false);
    });
    if (!usage) throw new Error("The server ended the answer");
    const s = (performance.now() - first) / 1000, n = usage.completion_tokens;
    const speed = n > 1 ? `, ${rate((n - 1) / s)}/s` : "", wait = ((first - begin) / 1000).toFixed(2);
    out.finish(`${n} ${n === 1 ? "token" : "tokens"}${first ? `${speed}, first after ${wait} s` : ""}` +
      `, ${usage.prompt_tokens_details.cached_tokens} of ${usage.prompt_tokens} prompt tokens reused` + (reason === "length" ? ", cut by length" : ""), "done");
  } catch (e) {
    const stopped = e.name === "AbortError";
    out.finish(stopped ? "Stopped" : e.message, stopped ? "stopped" : "bad");
  }
  running = null;
  busy(false);
  $("status").textContent = "";
  /* Back to the message, unless the reader went elsewhere meanwhile. */
  if (document.activeElement === document.body || document.activeElement === $("stop")) $("say").focus();
}

$("form").onsubmit = (e) => {
  e.preventDefault();
  const text = $("say").value.trim();
  if (!text || running) return;
  $("say").value = "";
  messages.push({ role: "user", content: text });
  showText("user", text);
  answer();
};
$("say").onkeydown = (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); $("form").requestSubmit(); }
};
$("stop").onclick = () => running && running.abort();
document.addEventListener("keydown", (e) => { if (e.key === "Escape" && running) running.abort(); });
$("clear").onclick = () => { if (running) running.abort(); messages.length = 0; $("log").replaceChildren($("hint")); $("hint").hidden = false; $("say").focus(); };
function showPanel(on) {
  $("panel").hidden = !on;
  $("toggle").setAttribute("aria-expanded", on);
}
$("toggle").onclick = () => showPanel($("panel").hidden);
const narrow = matchMedia("(max-width: 800px)");  // as in style.css
showPanel(!narrow.matches);
narrow.addEventListener("change", () => showPanel(!narrow.matches));
$("key").value = sessionStorage.getItem("key") || "";
$("key").onchange = () => { sessionStorage.setItem("key", $("key").value); findModel(); };

async function findModel() {
  try {
    const got = await (await fetch("v1/models", { headers: headers() })).json();
    $("model").textContent = got.data[0].id;
  } catch (e) { $("model").textContent = "(needs an API key)"; }
}

/* --- the panel ----------------------------------------------------------------------------- */

const KEEP = 90;              // points, one a second
const COLORS = ["#2f7ed8", "#d9822b", "#3a9d5d", "#a855c8", "#c2410c", "#64748b", "#0e9aa7", "#b58900"];
const series = {};
["tokens", "prompt", "running", "waiting", "cache", "experts", "read"].forEach((k) => { series[k] = new Array(KEEP).fill(null); });
let last = null, charts = null, accounts = {};

/* Prometheus text to { "name{labels}": value }, histograms' buckets left out. */
function parseMetrics(text) {
  const out = {};
  for (const line of text.split("\n")) {
    if (!line || line[0] === "#" || line.includes("_bucket{")) continue;
    const at = line.lastIndexOf(" ");
    out[line.slice(0, at).replace(/engine="0",model_name="(\\.|[^"\\])*",?/, "").replace("{}", "")] = Number(line.slice(at + 1));
  }
  return out;
}

function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name); }

function dataset(label, data, i, area) {
  return { label, data, borderColor: COLORS[i % COLORS.length], backgroundColor: COLORS[i % COLORS.length] + (area ? "66" : ""),
    borderWidth: 1.5, pointRadius: 0, tension: 0, fill: area ? (i ? "-1" : "origin") : false };
}

/* A minute and a half, the newest second at the right edge. */
function line(id, datasets, { max, ticks, stacked } = {}) {
  const dim = css("--dim");
  /* Bytes: the axis ends at a power of two, with one mark half-way. */
  const bytes = ticks !== size ? {} : { bounds: "data", afterDataLimits: (a) => { a.max = 2 ** Math.ceil(Math.log2(Math.max(a.max, 1024))); },
    afterBuildTicks: (a) => { a.ticks = [0, a.max / 2, a.max].map((value) => ({ value })); } };
  return new Chart($(id), { type: "line", data: { labels: new Array(KEEP).fill(""), datasets },
    options: { animation: false, responsive: true, maintainAspectRatio: false, spanGaps: false,
      interaction: { mode: "index", intersect: false },
      plugins: { legend: { align: "start", labels: { color: dim, boxWidth: 14, boxHeight: 2, padding: 6, font: { size: 11 } } } },
      scales: { x: { display: false }, y: { ...bytes, min: 0, suggestedMax: max, stacked: !!stacked, grid: { color: css("--line"), drawBorder: false },
        ticks: { color: dim, maxTicksLimit: 4, font: { size: 11 }, callback: ticks || ((v) => v.toLocaleString()) } } } } });
}

function openCharts() {
  if (charts) Object.values(charts).forEach((c) => c.destroy());
  const percent = (v) => v + " %";
  charts = { tokens: line("c_tokens", [dataset("made", series.tokens, 0), dataset("prompt", series.prompt, 1)], { max: 10 }),
    requests: line("c_requests", [dataset("running", series.running, 0), dataset("waiting", series.waiting, 1)], { max: 4 }),
    hits: line("c_hits", [dataset("prompt tokens", series.cache, 0), dataset("experts", series.experts, 1)], { max: 100, ticks: percent }),
    read: line("c_read", [dataset("bytes", series.read, 0)], { ticks: size }),
    memory: line("c_memory", Object.keys(accounts).map((k, i) => dataset(k, accounts[k], i, true)), { stacked: true, ticks: size }) };
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; bytes >= 1024 && i < 4; i++) bytes /= 1024;
  return (i && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)) + " " + units[i];
}

function numbers(rows) {
  $("numbers").replaceChildren(...rows.flatMap(([k, v]) => [node("dt", "", k), node("dd", "", v)]));
}

function push(name, value) {
  series[name].push(value);
  series[name].shift();
}

/* Memory by account; a new account needs a new line in the chart. */
function pushAccounts(m) {
  let fresh = false;
  for (const key of Object.keys(m)) {
    const found = /^trireme_memory_bytes\{account="([^"]*)"/.exec(key);
    if (!found) continue;
    const name = found[1];
    if (!accounts[name] && m[key] > 0) { accounts[name] = new Array(KEEP).fill(null); fresh = true; }
    if (accounts[name]) { accounts[name].push(m[key]); accounts[name].shift(); }
  }
  if (fresh) openCharts();
}

function draw(m, now) {
  const d = (name) => (last ? Math.max(0, (m[name] || 0) - (last.m[name] || 0)) : 0);
  const s = last ? (now - last.now) / 1000 : 1;
  const percent = (hit, all) => (all > 0 ? 100 * hit / all : null);
  const hits = d("trireme_expert_cache_hits_total"), misses = d("trireme_expert_cache_misses_total"), made = d("vllm:generation_tokens_total");
  push("tokens", made / s);
  push("prompt", d("vllm:prompt_tokens_total") / s);
  push("running", m["vllm:num_requests_running"]);
  push("waiting", m["vllm:num_requests_waiting"]);
  push("cache", percent(d("vllm:prefix_cache_hits_total"), d("vllm:prefix_cache_queries_total")));
  push("experts", percent(hits, hits + misses));
  push("read", made ? d("trireme_disk_read_bytes_total") / made : null);
  pushAccounts(m);
  numbers([["Running, waiting", `${m["vllm:num_requests_running"]}, ${m["vllm:num_requests_waiting"]}`],
    ["Tokens made", m["vllm:generation_tokens_total"].toLocaleString()],
    ["Slots in use", (100 * m["vllm:kv_cache_usage_perc"]).toFixed(1) + " %"],
    ["Prompt tokens reused", (percent(m["vllm:prefix_cache_hits_total"], m["vllm:prefix_cache_queries_total"]) || 0).toFixed(1) + " %"],
    ["Kept states", `${m.trireme_checkpoints} (${size(m.trireme_checkpoint_bytes)})`],
    ["Read per token", made ? size(d("trireme_disk_read_bytes_total") / made) : "–"],
    ["Resident memory", size(m.process_resident_memory_bytes)]]);
  Object.values(charts).forEach((c) => c.update());
  last = { m, now };
}

async function tick() {
  if (!$("panel").hidden && !document.hidden) {
    try {
      const r = await fetch("metrics", { headers: headers() });
      if (r.ok) draw(parseMetrics(await r.text()), performance.now());
    } catch (e) { numbers([["Server", "not reachable"]]); }
  }
  setTimeout(tick, 1000);
}

openCharts();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", openCharts);
findModel();
tick();

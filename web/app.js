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
  finish(note, bad) {
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
    messages.push(this.message);
    this.at = messages.length - 1;
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

function busy(on) {
  $("send").hidden = on;
  $("stop").hidden = !on;
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
    const s = (performance.now() - first) / 1000, n = usage.completion_tokens;
    out.finish(`${n} tokens, ${(n > 1 ? (n - 1) / s : 0).toFixed(1)}/s, first after ${((first - begin) / 1000).toFixed(2)} s` +
      `, ${usage.prompt_tokens_details.cached_tokens} of ${usage.prompt_tokens} prompt tokens reused` + (reason === "length" ? ", cut by length" : ""));
  } catch (e) {
    const stopped = e.name === "AbortError";
    out.finish(stopped ? "Stopped" : e.message, !stopped);
  }
  running = null;
  busy(false);
  $("status").textContent = "";
  $("say").focus();
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
$("clear").onclick = () => { if (running) running.abort(); messages.length = 0; $("log").replaceChildren(); $("say").focus(); };
$("toggle").onclick = () => {
  $("panel").hidden = !$("panel").hidden;
  $("toggle").setAttribute("aria-expanded", !$("panel").hidden);
};
$("key").value = sessionStorage.getItem("key") || "";
$("key").onchange = () => { sessionStorage.setItem("key", $("key").value); findModel(); };

async function findModel() {
  try {
    const got = await (await fetch("v1/models", { headers: headers() })).json();
    $("model").textContent = got.data[0].id;
  } catch (e) { $("model").textContent = "(needs an API key)"; }
}

/* --- the panel ----------------------------------------------------------------------------- */

const KEEP = 120;             // points, one a second
const series = { labels: [], tokens: [], prompt: [], running: [], waiting: [], cache: [], experts: [] };
let last = null, charts = null;

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

function line(id, sets, max) {
  const style = getComputedStyle(document.documentElement), dim = style.getPropertyValue("--dim"), grid = style.getPropertyValue("--line");
  const colors = ["#2f7ed8", "#d9822b", "#3a9d5d"];
  return new Chart($(id), { type: "line",
    data: { labels: series.labels, datasets: sets.map(([label, data], i) => ({ label, data, borderColor: colors[i], borderWidth: 1.5, pointRadius: 0, tension: 0.2 })) },
    options: { animation: false, responsive: true, maintainAspectRatio: false,
      plugins: { legend: { labels: { color: dim, boxWidth: 10, font: { size: 11 } } } },
      scales: { x: { display: false }, y: { min: 0, suggestedMax: max, grid: { color: grid }, ticks: { color: dim, maxTicksLimit: 4 } } } } });
}

function openCharts() {
  const dim = getComputedStyle(document.documentElement).getPropertyValue("--dim");
  return { tokens: line("c_tokens", [["made", series.tokens], ["prompt", series.prompt]], 1),
    requests: line("c_requests", [["running", series.running], ["waiting", series.waiting]], 1),
    hits: line("c_hits", [["prompt tokens reused, %", series.cache], ["experts in RAM, %", series.experts]], 100),
    memory: new Chart($("c_memory"), { type: "bar", data: { labels: [], datasets: [{ data: [], backgroundColor: "#2f7ed8" }] },
      options: { animation: false, responsive: true, maintainAspectRatio: false, indexAxis: "y", plugins: { legend: { display: false } },
        scales: { x: { ticks: { color: dim, maxTicksLimit: 4, callback: (v) => size(v) } }, y: { ticks: { color: dim, font: { size: 10 }, autoSkip: false } } } } }) };
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
  if (series[name].length > KEEP) series[name].shift();
}

function draw(m, now) {
  const d = (name) => (last ? Math.max(0, (m[name] || 0) - (last.m[name] || 0)) : 0);
  const s = last ? (now - last.now) / 1000 : 1;
  const percent = (hit, all) => (all > 0 ? 100 * hit / all : null);
  const hits = d("trireme_expert_cache_hits_total"), misses = d("trireme_expert_cache_misses_total"), made = d("vllm:generation_tokens_total");
  push("labels", "");
  push("tokens", made / s);
  push("prompt", d("vllm:prompt_tokens_total") / s);
  push("running", m["vllm:num_requests_running"]);
  push("waiting", m["vllm:num_requests_waiting"]);
  push("cache", percent(d("vllm:prefix_cache_hits_total"), d("vllm:prefix_cache_queries_total")));
  push("experts", percent(hits, hits + misses));
  numbers([["Running, waiting", `${m["vllm:num_requests_running"]}, ${m["vllm:num_requests_waiting"]}`],
    ["Tokens made", m["vllm:generation_tokens_total"]],
    ["Slots in use", (100 * m["vllm:kv_cache_usage_perc"]).toFixed(1) + " %"],
    ["Prompt tokens reused", (percent(m["vllm:prefix_cache_hits_total"], m["vllm:prefix_cache_queries_total"]) || 0).toFixed(1) + " %"],
    ["Kept states", `${m.trireme_checkpoints} (${size(m.trireme_checkpoint_bytes)})`],
    ["Read per token", made ? size(d("trireme_disk_read_bytes_total") / made) : "–"],
    ["Resident memory", size(m.process_resident_memory_bytes)]]);
  const accounts = Object.keys(m).filter((k) => k.startsWith("trireme_memory_bytes{") && m[k] > 0);
  charts.memory.data.labels = accounts.map((k) => /account="([^"]*)"/.exec(k)[1]);
  charts.memory.data.datasets[0].data = accounts.map((k) => m[k]);
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

charts = openCharts();
findModel();
tick();

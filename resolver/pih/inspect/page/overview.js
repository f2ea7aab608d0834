// The head of the page: what the bundle is, how large, where it runs, what it may do.

function drawOverview() {
  const { identity, versions, profile, target, limits, service, model } = bundle;
  document.title = `${shown(identity.name)} — PIH bundle`;
  byId("name").replaceChildren(shown(identity.name));
  const parts = [identity.reference, `made by pih ${versions.pih}`, `from ${profile.file}`].filter(Boolean);
  byId("summary").replaceChildren(parts.map(shown).join("  ·  "));
  byId("cards").replaceChildren(sizeCard(), memoryCard(), targetCard(target, model, limits, service), exactCard(), reachCard(), licenceCard());
  const facts = [
    ["Read from", identity.form],
    ["Digest", identity.digest || "not known in this form: compare content"],
    ["Config", identity.config],
    ["Content", identity.content],
    ["Lock", identity.lock],
    ["Profile", `${profile.file}  sha256:${profile.sha256}`],
    ["Sealed", bundle.sealed],
  ];
  byId("identity").replaceChildren(
    ...facts.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
  );
}

function card(title, figure, ...below) {
  return el("div", { class: "card" }, el("h2", {}, title), figure && el("p", { class: "figure" }, figure), ...below);
}

// A bar of parts, and what they are. parts: [name, size, colour, text].
function stacked(parts, whole, label) {
  const bars = parts.map(([, size, colour]) => el("i", { style: { "--fill": colour, "flex-grow": String(size / whole) } }));
  const rows = parts.map(([name, , colour, text]) => el("li", {}, swatch(colour), el("span", { class: "name" }, name), " ", el("small", {}, text)));
  return [el("div", { class: "stacked", role: "img", "aria-label": label }, bars), el("ul", { class: "keys" }, rows)];
}

const PARTS = ["#77aadd", "#44bb99", "#eedd88", "#ee8866", "#ffaabb"];

function sizeCard() {
  const rows = closure.children.filter((node) => node.size > 0);
  const parts = rows.map((node, index) => {
    const colour = node === weightsLayer ? WEIGHTS : PARTS[index % PARTS.length];
    return [node.name, node.size, colour, amount(node.size)];
  });
  const shipped = isShipped ? `${amount(closure.shipped)} shipped, ` : "";
  const own = closure.size - (weightsLayer?.size ?? 0);
  const without = weightsLayer ? `, ${amount(own)} without the weights` : "";
  const note = el("p", { class: "hint" }, `${shipped}${counted(closure.files, "file")}${without}`);
  return card("Size", amount(closure.size), note, ...stacked(parts, closure.size || 1, "Sizes of the layers"));
}

// What the worker allocates: on each device, where there are any, and on the host.
function memoryCard() {
  const budget = bundle.budget;
  const computed = [["weights", budget.weights, WEIGHTS], ["KV cache", budget.kv, PARTS[0]], ["activations", budget.activations, PARTS[1]]];
  const beside = [["spill", budget.spill, PARTS[2]], ["host", budget.host, PARTS[3]]];
  const driver = budget.device - budget.weights - budget.kv - budget.activations;
  if (!budget.device) return card("Memory", memory(budget.total), memoryBar([...computed, ...beside], budget.total, budget.limit, "of the host"));
  return card("Memory of each device", memory(budget.device), memoryBar([...computed, ["driver", driver, PARTS[4]]], budget.device, budget.device_limit, "of each device"), memoryBar(beside, budget.total, budget.limit, "of the host"));
}

function memoryBar(parts, total, limit, where) {
  const free = Math.max(0, limit - total);
  const rows = [...parts.filter(([, size]) => size > 0), ["free", free, "var(--line)"]].map(([name, size, colour]) => [name, size, colour, memory(size)]);
  const note = el("p", { class: "hint" }, `${memory(total)} of ${memory(limit)} ${where}, allocated at start`);
  return [note, ...stacked(rows, limit || 1, `Parts of the memory ${where}`)];
}

function targetCard(target, model, limits, service) {
  const device = target.device ? `${target.device.count} × ${target.device.sm || "device"}` : "no accelerator";
  const code = bundle.device_code;
  const rows = [
    ["Host", `${target.os} ${target.arch}, ${counted(target.threads, "thread")}, ${memory(target.memory_bytes)}`],
    ["Device", device],
    ...(code ? [["Device code", `${amount(code.code)} for ${code.arch}: ${code.proof}`]] : []),
    ["Model", `${model.plugin}: ${model.weights?.source ?? ""}`],
    ["Limits", `context ${limits.context}, batch ${limits.batch}, KV ${limits.kv_dtype}`],
    ["Serves", `${service.model_name} at ${service.host}:${service.port}`],
  ];
  return card("Runs on", target.isa, el("dl", {}, rows.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])));
}

function exactCard() {
  const slow = bundle.fallbacks;
  const list = el("ul", { class: "plain" }, slow.map((text) => el("li", {}, text)));
  const kernels = `${counted(bundle.plan.calls, "call")} of ${counted(bundle.bindings.length, "kernel")}, each with its kernel for this target`;
  const note = slow.length ? list : el("p", { class: "hint" }, kernels);
  return card("Fallbacks", slow.length ? counted(slow.length, "slower or less exact path") : "None", note);
}

function mayUse(permissions) {
  const network = { none: [], listen: ["listen on a port"] }[permissions.network] ?? [permissions.network];
  return [...network, ...permissions.devices, ...permissions.paths, ...permissions.environment.map((name) => `$${name}`)];
}

function reachCard() {
  const rows = bundle.plugins.map((plugin) => [plugin.id, mayUse(plugin.permissions).join(", ")]).filter(([, text]) => text);
  const list = el("dl", {}, rows.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  return card("May use of the host", rows.length ? counted(rows.length, "plugin") : "Nothing", list);
}

function licenceCard() {
  const found = new Map();
  for (const row of bundle.components) {
    const name = row.licence && row.licence !== "NOASSERTION" ? row.licence : "not stated";
    found.set(name, (found.get(name) ?? 0) + 1);
  }
  const rows = [...found].sort((a, b) => b[1] - a[1]);
  const items = rows.map(([name, count]) => el("li", {}, el("span", { class: "name" }, name), " ", el("small", {}, counted(count, "component"))));
  return card("Licences", counted(rows.length, "expression"), el("ul", { class: "plain rows" }, items));
}

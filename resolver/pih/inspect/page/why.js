// The panel beside the views: what is selected, and why it is there.

function drawWhy() {
  const place = byId("why");
  place.classList.toggle("filled", state.selected !== null);
  if (state.selected === null) {
    place.replaceChildren(
      el("h2", { id: "why-title" }, "Why is it here?"),
      el("p", { class: "hint" }, "Select a file, component, plugin or op: its chain of reasons back to a line of the profile stands here, and is marked in both views."),
    );
    return;
  }
  const thing = things.get(state.selected);
  const file = files.get(state.selected);
  const chains = chainsOf(state.selected);
  const parts = [
    el("div", { class: "bar" },
      el("p", { class: "kind" }, thing.kind),
      el("button", { type: "button", class: "close", "aria-label": "Let go of the selection", onclick: () => change({ selected: null }) }, "×"),
    ),
    el("h2", { id: "why-title" }, file ? lastOf(file.path) : thing.name),
    file ? el("p", { class: "hint" }, file.path) : null,
    el("h3", {}, chains.length > 1 ? "Shortest chain of reasons" : "Chain of reasons"),
    chains.length ? steps(chains[0]) : el("p", { class: "hint" }, "The lock gives none."),
    chains.length > 1 ? more(chains.slice(1)) : null,
    el("dl", { class: "stack" }, factsOf(thing, file).filter(([, text]) => text).map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])),
  ];
  place.replaceChildren(...parts.filter(Boolean));
}

function factsOf(thing, file) {
  const row = components.get(componentOf(thing.key));
  if (!file) {
    const size = row && thing.name === row.name ? `${amount(row.size)} in ${counted(row.files, "file")}` : "";
    return [["About", thing.about], ["In the bundle", size], ["Licence", row?.name === thing.name ? row.licence : ""], ["Digest", thing.digest]];
  }
  return [
    ["Size", file.target ? `link to ${file.target}` : `${amount(file.size)} (${file.size.toLocaleString("en")} bytes)`],
    ["Component", row ? `${row.name} ${row.version}`.trim() : file.component],
    ["Layer", file.layer],
    ["Licence", row?.licence ?? ""],
    ["Digest", file.digest ?? ""],
  ];
}

function steps({ words }) {
  return el("ol", { class: "chain" }, words.map((text) => el("li", {}, text)));
}

function more(chains) {
  const summary = el("summary", {}, `${counted(chains.length, "more chain")}${chains.length === MOST_CHAINS - 1 ? " of many" : ""}`);
  return el("details", {}, summary, chains.map(steps));
}

watch((changed) => {
  if (changed.has("selected")) drawWhy();
});

// Tables of everything, one at a time: searched as one types, sorted by a click on a column's head.

const SHORT = 19; // of a digest: enough to tell two apart; the title has all of it
const MOST_ROWS = 1000;
const brief = (digest) => (digest ? `${digest.slice(0, SHORT)}…` : "");

// A column: its head, the value to sort and search by, and where that is not what is shown, the text.
const TABLES = {
  files: {
    title: "Files",
    rows: () => bundle.files,
    key: (row) => keyOf("file", row.path),
    columns: [
      { head: "Path", value: (row) => row.path, text: (row) => (row.target ? `${row.path} → ${row.target}` : row.path) },
      { head: "Size", value: (row) => row.size, text: (row) => (row.target ? "link" : amount(row.size)), number: true },
      { head: "Component", value: (row) => row.component },
      { head: "Layer", value: (row) => row.layer },
      { head: "Reason", value: (row) => row.reason },
    ],
  },
  components: {
    title: "Components",
    rows: () => bundle.components,
    key: (row) => thingOfComponent(row.name),
    columns: [
      { head: "Component", value: (row) => row.name },
      { head: "Version", value: (row) => row.version },
      { head: "Unpacked", value: (row) => row.size, text: (row) => amount(row.size), number: true },
      { head: "Files", value: (row) => row.files, text: (row) => row.files.toLocaleString("en"), number: true },
      { head: "Licence", value: (row) => row.licence },
      { head: "Reason", value: (row) => row.reason.split(" → ").at(-1) },
    ],
  },
  ops: {
    title: "Op bindings",
    rows: () => bundle.bindings,
    key: (row) => keyOf("kernel", row.symbol),
    columns: [
      { head: "Op", value: (row) => row.op },
      { head: "Weights", value: (row) => (row.weight ? `${row.weight} in ${row.layout}` : "") },
      { head: "Activations", value: (row) => row.activation },
      { head: "Kernel", value: (row) => row.symbol },
      { head: "Source", value: (row) => row.source },
      { head: "Precision", value: (row) => row.precision },
      { head: "Path", value: (row) => row.path },
    ],
  },
  artifacts: {
    title: "Artifacts",
    rows: () => bundle.artifacts,
    key: (row) => keyOf("artifact", row.name),
    columns: [
      { head: "Artifact", value: (row) => row.name },
      { head: "Version", value: (row) => row.version },
      { head: "Kind", value: (row) => row.kind },
      { head: "Size", value: (row) => row.size, text: (row) => amount(row.size), number: true },
      { head: "Licence", value: (row) => row.licence },
      { head: "In the image", value: (row) => (components.has(row.name) ? "yes" : "") },
      { head: "sha256", value: (row) => row.sha256, text: (row) => brief(row.sha256) },
    ],
  },
  plugins: {
    title: "Plugins",
    rows: () => bundle.plugins,
    key: (row) => keyOf("plugin", row.id),
    columns: [
      { head: "Plugin", value: (row) => row.id },
      { head: "Version", value: (row) => row.version },
      { head: "Provides", value: (row) => Object.keys(row.provides).join(", ") },
      { head: "Requires", value: (row) => row.requires.map((need) => need.capability).join(", ") },
      { head: "May use", value: (row) => mayUse(row.permissions).join(", ") },
      { head: "Source", value: (row) => (row.source === "workspace" ? "the source tree" : `${row.source}, ${row.trust}`) },
      { head: "Reason", value: (row) => row.reason },
    ],
  },
};
if (bundle.device_code) {
  TABLES.code = {
    title: "Device code",
    rows: () => bundle.device_code.entries,
    key: (row) => keyOf("kernel", row.symbol),
    columns: [
      { head: "Entry", value: (row) => row.name },
      { head: "Op", value: (row) => row.op },
      { head: "Calls", value: (row) => row.calls, number: true },
      { head: "Code", value: (row) => row.code, text: (row) => amount(row.code), number: true },
      { head: "Registers", value: (row) => row.registers, number: true },
      { head: "Shared", value: (row) => row.shared, text: (row) => amount(row.shared), number: true },
      { head: "Spills", value: (row) => row.frame, text: (row) => amount(row.frame), number: true },
    ],
  };
}
const order = { column: -1, isDown: false };

function drawTabs() {
  const tabs = Object.entries(TABLES).map(([name, { title, rows }]) =>
    el("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "panel",
      "aria-selected": String(state.tab === name), tabindex: state.tab === name ? 0 : -1,
      onclick: () => change({ tab: name }),
    }, title, " ", el("small", {}, rows().length.toLocaleString("en"))),
  );
  byId("tabs").replaceChildren(...tabs);
  byId("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
}

function onTabKey(event) {
  const names = Object.keys(TABLES);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  change({ tab: names[(names.indexOf(state.tab) + step + names.length) % names.length] });
  byId(`tab-${state.tab}`).focus();
}

function chosenRows(table) {
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => table.columns.map((column) => column.value(row)).join(" ").toLowerCase();
  const found = table.rows().filter((row) => {
    const whole = text(row);
    return words.every((word) => whole.includes(word));
  });
  const column = table.columns[order.column];
  if (!column) return found;
  const compare = (a, b) => (column.number ? column.value(a) - column.value(b) : String(column.value(a)).localeCompare(String(column.value(b)), "en", { numeric: true }));
  return [...found].sort((a, b) => (order.isDown ? compare(b, a) : compare(a, b)));
}

function sortBy(index) {
  const isNumber = Boolean(TABLES[state.tab].columns[index].number);
  order.isDown = order.column === index ? !order.isDown : isNumber;
  order.column = index;
  drawTable();
  byId("panel").querySelectorAll("thead button")[index].focus();
}

function drawTable() {
  const table = TABLES[state.tab];
  const rows = chosenRows(table);
  const heads = table.columns.map((column, index) => {
    const sorted = order.column === index ? (order.isDown ? "descending" : "ascending") : false;
    return el("th", { scope: "col", class: column.number ? "number" : false, "aria-sort": sorted }, el("button", { type: "button", onclick: () => sortBy(index) }, column.head));
  });
  const body = rows.slice(0, MOST_ROWS).map((row) => line(table, row));
  byId("panel").replaceChildren(
    el("table", {}, el("caption", { class: "unseen" }, table.title), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body)),
  );
  const all = table.rows().length;
  const cut = rows.length > MOST_ROWS ? `, the first ${MOST_ROWS.toLocaleString("en")} shown: search for the others` : "";
  byId("count").replaceChildren(`${rows.length === all ? "" : `${rows.length.toLocaleString("en")} of `}${counted(all, "row")}${cut}`);
}

function line(table, row) {
  const key = table.key(row);
  const isKnown = key !== null && things.has(key);
  const cells = table.columns.map((column, index) => {
    const text = (column.text ?? column.value)(row);
    const inner = index === 0 && isKnown ? el("button", { type: "button", class: "link", "aria-pressed": String(state.selected === key), onclick: () => select(key) }, text) : text;
    const title = column.text && !column.number ? shown(column.value(row)) : false;
    return el(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : false, class: column.number ? "number" : false, title }, inner);
  });
  const made = el("tr", { class: state.selected === key ? "on" : false }, cells);
  made.key = key;
  return made;
}

// A selection alone does not move the rows that are being read.
function markRow() {
  for (const row of byId("panel").querySelectorAll("tbody tr")) {
    const isOn = row.key === state.selected;
    row.classList.toggle("on", isOn);
    row.querySelector("button")?.setAttribute("aria-pressed", String(isOn));
  }
}

watch((changed) => {
  if (changed.has("selected")) markRow();
  if (!changed.has("tab")) return;
  order.column = -1;
  drawTabs();
  drawTable();
});

// Draw everything once, and listen.

function setTheme(event) {
  if (event.target.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = event.target.value;
}

drawOverview();
drawLegend();
drawMeasures();
drawMap();
drawWhy();
drawGraph();
drawChosen();
drawTabs();
drawTable();

byId("theme").addEventListener("change", setTheme);
byId("map").addEventListener("keydown", onMapKey);
byId("map").addEventListener("pointermove", onMapHover);
byId("map").addEventListener("pointerleave", () => (byId("tip").hidden = true));
byId("tabs").addEventListener("keydown", onTabKey);
byId("search").addEventListener("input", drawTable);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("map").contains(event.target) && event.target !== byId("search")) change({ selected: null });
});
new ResizeObserver(drawMap).observe(byId("map"));
new ResizeObserver(() => drawChosen()).observe(document.querySelector("#graph .canvas"));

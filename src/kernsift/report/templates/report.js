"use strict";
(() => {
  const root = document.documentElement;
  const dark = () => root.dataset.theme
    ? root.dataset.theme === "dark"
    : window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
  });

  const table = document.getElementById("features");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const cards = [...document.querySelectorAll(".card")];

  // Small p-values first, large effects and scores first: what one looks for comes up with the first click.
  const falling = new Set(["effect", "score", "significant"]);
  for (const button of table.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const key = button.dataset.key;
      const before = head.getAttribute("aria-sort");
      const way = before ? (before === "ascending" ? "descending" : "ascending")
        : (falling.has(key) ? "descending" : "ascending");
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", way);
      const sign = way === "ascending" ? 1 : -1;
      const compare = key === "name"
        ? (a, b) => a.dataset.name.localeCompare(b.dataset.name, undefined, { numeric: true })
        : (a, b) => Number(a.dataset[key]) - Number(b.dataset[key]);
      rows.sort((a, b) => sign * compare(a, b) || a.dataset.rank - b.dataset.rank);
      body.append(...rows);
    });
  }

  const search = document.getElementById("search");
  const significant = document.getElementById("significant");
  const count = document.getElementById("count");
  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    const fits = (item) => item.dataset.name.toLowerCase().includes(wanted)
      && (!significant.checked || item.dataset.significant === "1");
    let shown = 0;
    for (const row of rows) {
      row.hidden = !fits(row);
      shown += row.hidden ? 0 : 1;
    }
    for (const card of cards) card.hidden = !fits(card);
    count.textContent = shown === rows.length ? "" : `${shown} of ${rows.length}`;
  };
  search.addEventListener("input", filter);
  significant.addEventListener("change", filter);
})();

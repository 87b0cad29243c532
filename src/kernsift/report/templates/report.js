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
  const cards = [...document.querySelectorAll(".card")];
  const STEP = 200;
  const collator = new Intl.Collator(undefined, { numeric: true });

  // A feature is its values and, once it has been shown, its row of the table.
  const items = [...body.rows].map((row) => {
    const item = { row, listed: true, name: row.dataset.name };
    for (const key of ["rank", "significant", "effect", "p", "adjusted", "score", "n", "missing"]) {
      item[key] = row.dataset[key] === undefined ? NaN : Number(row.dataset[key]);
    }
    return item;
  });
  const first = items.length;
  const model = first ? items[0].row : null;
  const data = document.getElementById("others");
  const listed = Number(table.dataset.listed);
  for (const values of data ? JSON.parse(data.textContent) : []) {
    const [name, significant, effect, p, adjusted, score, n, missing, change] = values;
    const rank = items.length + 1;
    items.push({ name, significant, effect, p, adjusted, score, n, missing, change, rank, listed: rank <= listed });
  }

  const pText = (p) => p < 1e-99 ? "<1e-99" : p >= 1e-4 ? p.toFixed(4) : p.toExponential(1).replace(/e-(\d)$/, "e-0$1");
  const shareText = (share) => `${share > 0 && share < 0.005 ? Number((100 * share).toPrecision(1)) : Math.round(100 * share)}%`;
  const rowOf = (item) => {
    if (item.row) return item.row;
    const row = model.cloneNode(true);
    const put = (selector, text) => {
      const cell = row.querySelector(selector);
      if (cell) cell.textContent = text;
    };
    put(".rank", item.listed ? item.rank : "");
    put("th", item.name);
    put(".change", item.change);
    put(".effect", item.effect === null ? "" : item.effect.toFixed(2));
    put(".p", pText(item.p));
    put(".adjusted", pText(item.adjusted));
    put(".n", item.n.toLocaleString("en"));
    put(".missing", item.missing === null ? "" : shareText(item.missing));
    put(".score", Number(item.score.toPrecision(4)));
    const badge = row.querySelector(".badge");
    badge.textContent = item.significant ? "★" : "";
    badge.title = item.significant ? "significant" : "";
    badge.className = item.significant ? "badge significant" : "badge";
    for (const key of ["name", "rank", "significant", "effect", "p", "adjusted", "score", "n", "missing"]) {
      row.dataset[key] = item[key] === null ? "" : item[key];
    }
    item.row = row;
    return row;
  };

  const search = document.getElementById("search");
  const significant = document.getElementById("significant");
  const outside = document.getElementById("outside");
  const count = document.getElementById("count");
  const more = document.getElementById("more");
  let order = items.slice();
  let shown = Math.max(STEP, first);
  const fits = () => {
    const wanted = search.value.trim().toLowerCase();
    return (item) => item.name.toLowerCase().includes(wanted) && (!significant.checked || item.significant)
      && (item.listed || (outside && outside.checked));
  };
  const show = () => {
    const found = order.filter(fits());
    body.replaceChildren(...found.slice(0, shown).map(rowOf));
    const all = outside && outside.checked ? items.length : listed;
    count.textContent = found.length === all ? "" : `${found.length.toLocaleString("en")} of ${all.toLocaleString("en")}`;
    more.hidden = found.length <= shown;
    more.textContent = `Show ${Math.min(STEP, found.length - shown)} of ${(found.length - shown).toLocaleString("en")} more`;
    const names = new Set(search.value || significant.checked ? found.map((item) => item.name) : []);
    for (const card of cards) card.hidden = Boolean(search.value || significant.checked) && !names.has(card.dataset.name);
  };
  const restart = () => { shown = Math.max(STEP, first); show(); };
  search.addEventListener("input", restart);
  significant.addEventListener("change", restart);
  if (outside) outside.addEventListener("change", restart);
  more.addEventListener("click", () => { shown += STEP; show(); });

  // Small p-values first, large effects and scores first: what one looks for comes up with the first click.
  const falling = new Set(["effect", "score", "significant", "n", "missing"]);
  const words = {
    rank: "evidence, strongest first", name: "name", significant: "significance", effect: "effect",
    p: "p-value", adjusted: "corrected p-value", score: "score", n: "rows used", missing: "share missing",
  };
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
      const value = (item) => item[key] === null || Number.isNaN(item[key]) ? -Infinity : item[key];
      const compare = key === "name"
        ? (a, b) => collator.compare(a.name, b.name)
        : (a, b) => value(a) - value(b);
      order = items.slice().sort((a, b) => sign * compare(a, b) || a.rank - b.rank);
      const size = key === "rank" && sign > 0 || key === "name" ? "" : sign > 0 ? ", smallest first" : ", largest first";
      document.getElementById("sorted").textContent = `sorted by ${words[key]}${size}`;
      restart();
    });
  }
  const chosen = table.querySelector(`thead th:not([aria-sort]) button[data-key="${table.dataset.sort}"]`);
  if (chosen) chosen.click(); else show();
})();

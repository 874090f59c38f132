"use strict";
// The page is complete without this script, which adds sorting, searching, sliders over the curve and
// intervals on hover. It computes no guarantee: it shows cells of tables on the page.

const make = (tag, values = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), values);
  made.append(...children);
  return made;
};

// Numbers have thousands separators and a true minus; blanks and words come last.
const numberOf = (text) => {
  const plain = text.trim().replaceAll(",", "").replace("−", "-").replace(/[%M]$/, "");
  if (plain.startsWith("∞")) return Infinity;
  return plain === "" || Number.isNaN(Number(plain)) ? NaN : Number(plain);
};

const compare = (numbers, down) => (one, two) => {
  if (!numbers) return (down ? -1 : 1) * one.text.localeCompare(two.text, undefined, { numeric: true });
  const [x, y] = [numberOf(one.text), numberOf(two.text)];
  if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
  return x === y ? 0 : (x < y ? -1 : 1) * (down ? -1 : 1);
};

const sort = (table, place) => {
  const head = table.tHead.rows[0].cells[place];
  const numbers = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  const down = before ? before === "ascending" : numbers;
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, text: row.cells[place].textContent }));
  rows.sort(compare(numbers, down));
  table.tBodies[0].append(...rows.map(({ row }) => row));
};

const makeSortable = (table) => {
  [...table.tHead.rows[0].cells].forEach((head, place) => {
    const button = make("button", { type: "button", className: "sort" }, ...head.childNodes);
    button.addEventListener("click", () => sort(table, place));
    head.replaceChildren(button);
  });
};

const FEW_ROWS = 8;
const makeFindable = (table) => {
  const rows = [...table.tBodies[0].rows];
  if (rows.length <= FEW_ROWS) return;
  const field = make("input", { type: "search", placeholder: "Find in the table" });
  field.setAttribute("aria-label", "Find in the table");
  const told = make("output");
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLocaleLowerCase();
    const found = rows.filter((row) => {
      row.hidden = !row.textContent.toLocaleLowerCase().includes(wanted);
      return !row.hidden;
    });
    told.textContent = wanted ? `${found.length} of ${rows.length} rows` : "";
  });
  table.closest(".box").before(make("p", { className: "find" }, field, " ", told));
};

// Between two rows of the table the next row applies, which is never a stronger guarantee.
const makeAsked = (ask) => {
  const table = ask.parentElement.querySelector("table.curve");
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells].slice(1).map((head) => head.textContent.trim());
  const [units, deltas] = [ask.querySelector(".units"), ask.querySelector(".deltas")];
  const tell = () => {
    const count = Number(units.value);
    const row = rows.find((one) => Number(one.dataset.units) >= count);
    const cell = row.cells[Number(deltas.value) + 1];
    const delta = heads[Number(deltas.value)];
    ask.querySelector(".units-told").textContent = count;
    ask.querySelector(".delta-told").textContent = delta.replace("δ = ", "");
    const what = count === 1 ? ask.dataset.one : `${count} ${ask.dataset.what}`;
    const next = Number(row.dataset.units) === count ? "" : ` (the value for ${row.dataset.units})`;
    const answer = cell.dataset.factor === undefined
      ? [`For ${what}, `, make("strong", {}, "nothing is guaranteed"), ` at ${delta}${next}.`]
      : [`For ${what}: `, make("strong", {}, `ε = ${cell.textContent.trim()}`), ` at ${delta}${next}. ` +
         `Starting from even odds, an attacker guesses correctly at most ${cell.dataset.right} of the time: ` +
         `no outcome is more than ${cell.dataset.factor} times as likely in either case, plus δ.`];
    ask.querySelector(".answer").replaceChildren(...answer);
  };
  for (const slider of [units, deltas]) slider.addEventListener("input", tell);
  ask.hidden = false;
  tell();
};

// Rows of a picture have titles; they also appear below it, because touch screens have no hover.
const makeTold = (figure) => {
  const rows = [...figure.querySelectorAll("g.told")];
  if (!rows.length) return;
  const told = make("output", { className: "pointed" }, "Point at a row to see its numbers.");
  (figure.querySelector("figcaption") ?? figure.lastElementChild).before(told);
  for (const row of rows) {
    const say = () => { told.textContent = row.querySelector("title").textContent; };
    for (const event of ["pointerenter", "click"]) row.addEventListener(event, say);
  }
};

for (const table of document.querySelectorAll("table.estimates")) {
  makeSortable(table);
  makeFindable(table);
}
document.querySelectorAll(".ask").forEach(makeAsked);
document.querySelectorAll("figure").forEach(makeTold);

// Open everything for printing.
const folded = () => document.querySelectorAll("details:not([open])");
let opened = [];
addEventListener("beforeprint", () => { opened = [...folded()]; for (const one of opened) one.open = true; });
addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
